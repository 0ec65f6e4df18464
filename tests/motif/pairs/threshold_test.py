from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from motif_jax.core.verdicts import FIRST, TIE
from motif_jax.motif.pairs import outcomes, threshold
from motif_jax.motif.pairs.outcomes import Outcomes

ABOVE = outcomes.ABOVE
BELOW = outcomes.BELOW
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
    standing = standings("k>a k>c a=b c>k c>a a>c", silence=False)
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


def test_without_ties_and_empty_text_texts_above_the_mean_step_are_paid() -> None:
    without = statistics(NONE, NONE)
    assert without["advice"]["threshold"] == 0.0
    assert not without["advice"]["by_steps"]
    text = threshold.describe(without, 0.6)
    assert "quantile=0.6 pays 31 % of the training dataset's steps" in text
    assert "(0.00, above the mean step, " in text
    assert "since no text is empty) pays 39 %" in text
    assert "above the empty" not in text
    assert "since no text is empty; it pays 39 %" in threshold.facts(without)[0][2]


def test_a_share_of_all_steps_is_written_as_100_percent() -> None:
    text = threshold.describe(statistics(NONE, NONE), 0.9)

    assert text.startswith("reward.quantile=0.9 pays 100 % of the training dataset's steps;")


# Captions of a lander that always say something: what usually happens is on most steps.
LANDER = {
    "You touch the ground softly.": (2.0, 20, ABOVE),
    "You slow down.": (1.1, 300, ABOVE),
    "You drift left.": (0.4, 2200, BELOW),
    "You drift right.": (0.3, 2300, BELOW),
    "You fall fast.": (-0.2, 5000, BELOW),
    "You crash!": (-1.5, 180, BELOW),
}


def advice_of_captions(captions: dict[str, tuple[float, int, int]]) -> dict[str, Any]:
    rewards, steps, standing = map(np.array, zip(*captions.values(), strict=True))
    nothing = np.zeros(len(captions), bool)
    return threshold.advise(rewards, steps, nothing, nothing, np.zeros(1), standing.astype(np.int8))


def paid_by(advice: dict[str, Any], captions: dict[str, tuple[float, int, int]]) -> list[str]:
    return [text for text, (reward, *_) in captions.items() if reward > advice["threshold"]]


def test_without_silence_texts_that_win_are_paid_and_what_usually_happens_is_not() -> None:
    advice = advice_of_captions(LANDER)

    assert paid_by(advice, LANDER) == ["You touch the ground softly.", "You slow down."]
    assert advice["paid_share"] == pytest.approx(0.032)
    assert not advice["has_empty"]
    assert not advice["by_steps"]


def test_without_silence_no_text_is_paid_less_than_nothing() -> None:
    """Each text wins most of its comparisons, so that the labels say nothing against one."""
    captions = {text: (reward, steps, ABOVE) for text, (reward, steps, _) in LANDER.items()}

    advice = advice_of_captions(captions)

    assert paid_by(advice, captions) == list(captions)[:4]
    assert (advice["threshold"], advice["paid_share"]) == (0.0, pytest.approx(0.482))


def test_without_silence_at_most_half_of_the_steps_are_paid() -> None:
    """The median of these distinct texts would pay "left", too, and three quarters of the steps."""
    captions = {
        "You land.": (2.0, 10, ABOVE),
        "You slow down.": (1.0, 2990, ABOVE),
        "You drift left.": (0.5, 4500, ABOVE),
        "You drift right.": (0.4, 500, ABOVE),
        "You crash!": (-3.0, 2000, BELOW),
    }

    advice = advice_of_captions(captions)

    assert paid_by(advice, captions) == ["You land.", "You slow down."]
    assert (advice["by_steps"], advice["paid_share"]) == (True, pytest.approx(0.3))


def test_the_best_text_is_paid_however_often_it_occurs() -> None:
    captions = {"a": (0.01, 9990, ABOVE), "b": (-0.5, 9, BELOW), "c": (-9.0, 1, BELOW)}

    advice = advice_of_captions(captions)

    assert paid_by(advice, captions) == ["a"]


def test_a_rare_silence_leaves_half_of_the_steps_unpaid() -> None:
    """It is shown by the first observation alone, and the judge puts it last."""
    captions = {text: (reward, steps, ABOVE) for text, (reward, steps, _) in LANDER.items()}
    captions[""] = (-2.0, 10, 0)
    rewards, steps, standing = map(np.array, zip(*captions.values(), strict=True))
    empty = np.array([not text for text in captions])

    advice = threshold.advise(
        rewards, steps, np.zeros(7, bool), empty, np.zeros(1), standing.astype(np.int8)
    )

    assert paid_by(advice, captions) == list(LANDER)[:4]
    text = threshold.describe({**STATISTICS, "advice": advice}, 0.5)
    assert "since most steps lie above the empty one) pays 48 %" in text


def test_texts_of_equal_rewards_are_not_paid_apart() -> None:
    rewards = np.array([1.0, 1.0, 0.0])
    assert threshold.best_half(rewards, np.array([400, 300, 300])) == 0.5
    assert threshold.best_half(np.ones(3), np.ones(3, int)) == 1.0


def test_few_texts_are_listed_with_what_they_are_paid() -> None:
    few = [
        {
            "text": "You land.",
            "reward": 1.5,
            "steps_share": 0.004,
            "wins": 9,
            "losses": 1,
            "ties": 0,
        },
        {
            "text": "You crash!",
            "reward": -0.5,
            "steps_share": 0.02,
            "wins": 0,
            "losses": 7,
            "ties": 2,
        },
    ]
    lines = threshold.describe({**STATISTICS, "advice": {**ADVICE, "few_texts": few}}, 0.5)
    listed = [line.split() for line in lines.splitlines()[1:4]]
    assert listed[0][:6] == ["reward.threshold=auto", "pays", "1", "of", "2", "texts"]
    assert listed[1][:4] == ["pays", "+1.50", "0.4", "%"]
    assert listed[2][:4] == ["no", "-0.50", "2", "%"]
    assert "0 won, 7 lost, 2 tied  'You crash!'" in lines


def test_texts_paid_without_silence_are_named_by_their_own_comparisons() -> None:
    texts = {
        "has_empty": False,
        "paid_without_win_texts": 1,
        "paid_without_win": [{"text": "You crash!", "why": "does not win", "reward": 0.43}],
    }
    lines = threshold.describe({**STATISTICS, "advice": {**ADVICE, **texts}}, 0.5)
    assert (
        "pays 1 text that does not win most of their comparisons in the labels: 'You crash!'"
        in lines
    )
    assert "empty text" not in lines


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
        np.array([8, 1, 1]),
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
        note
        == "above the ties and the empty text; it pays 1.2 % of the steps; 99 % of the steps show texts that the judge called ties"
    )


def test_without_advice_or_quantile_nothing_is_described() -> None:
    assert threshold.describe({**statistics(TIED, EMPTY), "advice": None}, 0.5) == ""
    assert threshold.describe(statistics(TIED, EMPTY), None) == ""
    assert threshold.facts({}) == []
