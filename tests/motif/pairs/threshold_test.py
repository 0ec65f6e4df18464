from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from motif_jax.core.verdicts import FIRST, TIE
from motif_jax.motif.pairs import outcomes, threshold
from motif_jax.motif.pairs.outcomes import Outcomes

TEXTS = ["", "It's a wall.", np.frombuffer(b"A k\xe9y.\0\0", np.uint8), "You kill it!", "e", "f"]


def test_wins_losses_and_ties_are_counted_by_step() -> None:
    """Not of pairs with equal texts (the fourth), nor of those without a verdict (the last)."""
    ids = np.array(
        [
            [[0, 1], [2, 1]],
            [[3, 3], [1, 0]],
            [[2, 4], [3, 0]],
            [[1, 1], [1, 1]],
            [[0, 4], [4, 0]],
            [[1, 0], [2, 2]],
            [[2, 3], [0, 1]],
        ]
    )
    counts = outcomes.count_outcomes(ids, np.array([0, 0, 1, 0, 2, 2, 3], np.int8), 6)

    assert counts.wins.tolist() == [2, 1, 0, 3, 0, 0]
    assert counts.losses.tolist() == [1, 2, 2, 0, 1, 0]
    assert counts.ties.tolist() == [3, 1, 2, 0, 2, 0]
    assert counts.steps.tolist() == [7, 9, 5, 4, 3, 0]
    assert counts.tied.tolist() == [1, 0, 1, 0, 1, 0]
    assert counts.wanted.tolist() == [3]
    assert (
        outcomes.describe(counts, TEXTS)
        == "texts that win are on 14 % of 28 steps: 'You kill it!' 4"
    )


# Each letter is a text, '.' is silence: who wins against whom, or '=' for a tie.
def labelled(text: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Ids [P, 2, 1], labels [P] and the texts of comparisons such as 'k>. w=.'."""
    names = sorted(set(text) - set(" >="), key=lambda name: (name != ".", name))
    ids = []
    labels = []
    for first, verdict, second in text.split():
        ids.append([[names.index(first)], [names.index(second)]])
        labels.append(TIE if verdict == "=" else FIRST)
    return np.array(ids), np.array(labels, np.int8), names


def standings(text: str, silence: bool = True) -> dict[str, int]:
    ids, labels, names = labelled(text)
    empty = np.array([silence and name == "." for name in names])
    return dict(zip(names, outcomes.standing(ids, labels, empty).tolist(), strict=True))


def test_a_text_is_above_silence_only_by_winning_against_it() -> None:
    standing = standings("k>. k>. .>l w=. w>l")
    assert standing["k"] == outcomes.ABOVE
    assert standing["l"] == standing["w"] == outcomes.BELOW


def test_a_text_unmet_by_silence_is_below_without_a_win() -> None:
    standing = standings("k>. k>a a>b")
    assert standing["a"] == outcomes.UNCOMPARED
    assert standing["b"] == outcomes.BELOW


def test_without_silence_texts_stand_by_their_own_wins() -> None:
    standing = standings("k>a a=b", silence=False)
    assert standing["k"] == outcomes.ABOVE
    assert standing["a"] == standing["b"] == outcomes.BELOW


def test_rewards_that_contradict_labels_or_tie_are_misjudged() -> None:
    ids, labels, names = labelled("k>. k>a a>. b>.")
    rewards = {".": 0.0, "k": 0.5, "a": 1.0, "b": 0.0}
    misjudged, num_wrong = outcomes.misjudged(
        ids, labels, np.array([rewards[name] for name in names])
    )
    assert [names[index] for index in misjudged] == ["b"]
    assert dict(zip(names, num_wrong.tolist(), strict=True)) == {".": 1, "a": 1, "b": 1, "k": 1}


def advice_of(normalised: list[float], standing: list[int], steps: list[int]) -> dict[str, Any]:
    return threshold.advise(
        np.array(normalised),
        np.array(steps),
        tied=np.zeros(len(steps), bool),
        empty=np.arange(len(steps)) == 0,
        levels=np.array([0.0]),
        standing=np.array(standing, np.int8),
    )


def test_the_threshold_lies_above_texts_that_do_not_beat_silence() -> None:
    """A text that waits lies above the empty one and below the text that wins."""
    advice = advice_of([0.0, 1.4, 3.0], [0, outcomes.BELOW, outcomes.ABOVE], [90, 8, 2])
    assert 1.4 < advice["threshold"] < 3.0
    assert advice["paid_share"] == 0.02


def test_the_threshold_takes_no_reward_from_texts_that_beat_silence() -> None:
    """A worthless text above a worthy one stays paid, and is named."""
    normalised = np.array([0.0, 1.4, 1.0])
    standing = np.array([0, outcomes.BELOW, outcomes.ABOVE], np.int8)
    advice = advice_of(normalised.tolist(), standing.tolist(), [90, 8, 2])
    assert advice["threshold"] < 1.0
    has_text = np.array([False, True, True])
    assert threshold.without_a_win(
        normalised, advice["threshold"], standing, has_text
    ).tolist() == [1]


def test_where_nothing_wins_the_threshold_lies_above_everything() -> None:
    advice = advice_of([0.0, 1.4, 3.0], [0, outcomes.BELOW, outcomes.BELOW], [90, 8, 2])
    assert advice["paid_share"] == 0.0


STATISTICS = {"quantile_levels": [0.5], "quantiles": [0.2]}
ADVICE = {
    "paid_shares": [0.4],
    "lump_share": 0.0,
    "lump_edge": None,
    "threshold": 0.3,
    "paid_share": 0.72,
}


def test_a_threshold_that_pays_most_steps_yields_the_quantile() -> None:
    assert threshold.falls_back(ADVICE)
    assert "pays 72 %, more than half: it falls back to the quantile" in threshold.describe(
        {**STATISTICS, "advice": ADVICE}, 0.5
    )
    assert not threshold.falls_back({**ADVICE, "paid_share": 0.5})


def test_texts_that_speak_against_the_reward_are_named() -> None:
    texts = {
        "texts": 9,
        "paid_without_win_texts": 1,
        "paid_without_win": [{"text": "You wait.", "why": "does not win", "reward": 1.43}],
        "misjudged_texts": 1,
        "misjudged": [{"text": "You starve.", "wins": 0, "losses": 7, "wrong": 5, "reward": 0.5}],
    }
    lines = threshold.describe(
        {**STATISTICS, "advice": {**ADVICE, "paid_share": 0.1, **texts}}, 0.5
    )
    assert (
        "pays 1 text that does not beat the empty text in the labels: 'You wait.' (does not win, +1.43)"
        in lines
    )
    assert (
        "1 of 9 texts disagrees with most of their labels: 'You starve.' (wins 0, loses 7, reward +0.50"
        in lines
    )


def outcomes_of(wins: list[int], losses: list[int], ties: list[int], steps: list[int]) -> Outcomes:
    return Outcomes(*map(np.array, (wins, losses, ties, steps)))


# One message wins nine of ten, one nine of eleven, one ties in some, one is always tied, one has no
# comparison.
SOME = outcomes_of(
    [9, 9, 20, 1, 5, 0], [1, 2, 0, 0, 0, 0], [0, 0, 3, 0, 5, 0], [5, 900, 7, 7, 18975, 106]
)


def test_a_wanted_text_wins_nine_of_ten_and_seldom_ties() -> None:
    assert SOME.wanted.tolist() == [2, 3, 0]


def test_wanted_texts_are_listed_with_their_steps() -> None:
    lines = outcomes.describe(SOME, TEXTS, 2).splitlines()
    assert (
        lines[0]
        == "texts that win are on 0.095 % of 20,000 steps: 'A kéy.' 7, 'You kill it!' 7 and 1 more"
    )


def test_a_goal_that_hardly_occurs_is_a_warning() -> None:
    line = "warning: the goal occurs on fewer than 0.1% of the steps: collect with players that reach it"
    assert line in outcomes.describe(SOME, TEXTS)
    edge = outcomes_of([1, 0], [0, 1], [0, 0], [1, 999])
    assert "warning" not in outcomes.describe(edge, TEXTS)


def test_labels_without_a_winner_are_a_warning() -> None:
    no_outcomes = Outcomes(*np.zeros((4, 6), int))
    assert outcomes.describe(no_outcomes, TEXTS) == (
        "warning: no text wins its comparisons: the labels give an agent no goal"
    )


NORMALISED = np.array([-0.1, 0.2, 0.15, 9.0, 3.0])
STEPS = np.array([4900, 2400, 600, 90, 10])
TIED = np.array([True, True, True, False, True])
EMPTY = np.array([True, False, False, False, False])
NONE = np.zeros(5, bool)
QUANTILES = [0.175, 0.5, 0.2, -1.0]


def statistics(tied: np.ndarray, empty: np.ndarray) -> dict[str, Any]:
    advice = threshold.advise(NORMALISED, STEPS, tied, empty, np.array(QUANTILES))
    return {"quantile_levels": [0.5, 0.75, 0.8, 0.9], "quantiles": QUANTILES, "advice": advice}


def test_a_threshold_pays_the_steps_above_it() -> None:
    shares = statistics(TIED, EMPTY)["advice"]["paid_shares"]
    assert shares == pytest.approx([2500 / 8000, 100 / 8000, 100 / 8000, 1.0])


def test_the_advised_threshold_exceeds_ties_and_the_empty_text() -> None:
    """The rare tie with the reward 3 is left out: 99 % of the ties' steps are at 0.2 or below."""
    advice = statistics(TIED, EMPTY)["advice"]
    assert advice["lump_edge"] == 0.2
    assert advice["threshold"] == pytest.approx(0.25)
    assert advice["paid_share"] == pytest.approx(100 / 8000)
    assert advice["lump_share"] == pytest.approx(7910 / 8000)


def test_without_ties_the_advised_threshold_lies_above_the_empty_text() -> None:
    advice = statistics(NONE, EMPTY)["advice"]
    assert (advice["lump_edge"], advice["threshold"]) == (None, pytest.approx(-0.05))


def test_without_ties_and_empty_text_nothing_is_advised() -> None:
    without = statistics(NONE, NONE)
    assert without["advice"]["threshold"] is None
    assert threshold.facts(without) == []
    assert (
        threshold.describe(without, 0.6)
        == "reward.quantile=0.6 pays 31 % of the training dataset's steps\n"
    )


def test_a_share_of_all_steps_is_written_as_100_percent() -> None:
    text = threshold.describe(statistics(NONE, NONE), 0.9)

    assert text == "reward.quantile=0.9 pays 100 % of the training dataset's steps\n"


ABOVE = outcomes.ABOVE
BELOW = outcomes.BELOW


@pytest.mark.parametrize(
    ("rewards", "standing", "advised"),
    [
        pytest.param(
            [0.0, 1.0, 3.0], [0, BELOW, ABOVE], 1.05, id="a margin above the worthless text"
        ),
        pytest.param(
            [0.0, 1.0, 1.04], [0, BELOW, ABOVE], 1.02, id="half way to a worthy text nearby"
        ),
        pytest.param(
            [0.0, 1.0, 0.5], [0, BELOW, ABOVE], 0.05, id="below a worthy text all the same"
        ),
        pytest.param(
            [0.0, 1.0, 3.0], [0, 0, ABOVE], 0.05, id="texts that were not compared do not count"
        ),
        pytest.param(
            [0.0, 1.0, 2.0], [0, BELOW, BELOW], 2.05, id="without a worthy text above all others"
        ),
    ],
)
def test_the_advised_threshold_exceeds_texts_that_lose_to_silence(
    rewards: list[float], standing: list[int], advised: float
) -> None:
    empty = np.array([True, False, False])

    advice = threshold.advise(
        np.array(rewards),
        np.ones(3, int),
        tied=np.zeros(3, bool),
        empty=empty,
        levels=np.zeros(1),
        standing=np.array(standing, np.int8),
    )

    assert advice["threshold"] == pytest.approx(advised)


def test_texts_paid_without_a_win_are_ordered_by_reward() -> None:
    normalised = np.array([5.0, 0.2, 3.0, 4.0, 2.0])
    standing = np.array([0, BELOW, ABOVE, 0, BELOW], np.int8)
    has_text = np.array([False, True, True, True, True])

    indices = threshold.without_a_win(normalised, 0.2, standing, has_text)

    assert indices.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("quantile", "warns"), [(0.6, True), (0.75, False), (0.8, False), (0.95, True)]
)
def test_a_quantile_within_the_ties_is_a_warning(quantile: float, warns: bool) -> None:
    text = threshold.describe(statistics(TIED, EMPTY), quantile)
    assert "reward.threshold=auto (0.25, above the ties and the empty text) pays 1.2 %" in text
    assert ("lies within the texts that the judge called ties" in text) == warns
    assert ("--config.reward.threshold=auto" in text) == warns


def test_a_page_shows_the_advised_threshold() -> None:
    label, value, note = threshold.facts(statistics(TIED, EMPTY))[0]
    assert (label, value) == ("advised threshold", "0.25")
    assert (
        note == "pays 1.2 % of the steps; 99 % of the steps show texts that the judge called ties"
    )


def test_without_advice_or_quantile_nothing_is_described() -> None:
    assert threshold.describe({**statistics(TIED, EMPTY), "advice": None}, 0.5) == ""
    assert threshold.describe(statistics(TIED, EMPTY), None) == ""
    assert threshold.facts({}) == []
