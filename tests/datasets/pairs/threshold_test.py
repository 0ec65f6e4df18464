"""What labels say about messages, and the threshold that follows from it."""

from __future__ import annotations

import numpy as np

from motif_jax.datasets.pairs import outcomes, threshold
from motif_jax.datasets.pairs.outcomes import Outcomes

TEXTS = ["", "It's a wall.", np.frombuffer(b"A k\xe9y.\0\0", np.uint8), "You kill it!", "e", "f"]


def test_wins_losses_and_ties_are_counted_by_step() -> None:
    """Not of pairs with equal texts (the fourth), nor of those without a verdict (the last)."""
    ids = np.array(
        [[[0, 1], [2, 1]], [[3, 3], [1, 0]], [[2, 4], [3, 0]], [[1, 1], [1, 1]], [[0, 4], [4, 0]], [[1, 0], [2, 2]], [[2, 3], [0, 1]]]
    )  # fmt: skip
    found = outcomes.count_outcomes(ids, np.array([0, 0, 1, 0, 2, 2, 3], np.int8), 6)
    assert (found.wins.tolist(), found.losses.tolist()) == ([2, 1, 0, 3, 0, 0], [1, 2, 2, 0, 1, 0])
    assert (found.ties.tolist(), found.steps.tolist()) == ([3, 1, 2, 0, 2, 0], [7, 9, 5, 4, 3, 0])
    assert (found.tied.tolist(), found.wanted.tolist()) == ([1, 0, 1, 0, 1, 0], [3])
    said = "texts that win are on 14 % of 28 steps: 'You kill it!' 4"
    assert outcomes.describe(found, TEXTS) == said


def test_what_nearly_always_wins_is_wanted_the_most_frequent_first() -> None:
    wins, losses, ties = [9, 9, 20, 1, 5, 0], [1, 2, 0, 0, 0, 0], [0, 0, 3, 0, 5, 0]
    found = Outcomes(*map(np.array, (wins, losses, ties, [5, 900, 7, 7, 18975, 106])))
    assert found.wanted.tolist() == [2, 3, 0]
    said = "texts that win are on 0.095 % of 20,000 steps: 'A kéy.' 7, 'You kill it!' 7"
    rare = (
        "\nwarning: the goal occurs on fewer than 0.1% of the steps: collect with players that reach it "
        "(docs/data.md), or choose another goal"
    )
    assert outcomes.describe(found, TEXTS, most=2) == f"{said} and 1 more{rare}"
    assert outcomes.describe(found, TEXTS, most=3) == f"{said}, '' 5{rare}"
    every = Outcomes(np.ones(6, int), *np.zeros((2, 6), int), np.array([1, 1, 1, 1, 1, 5]))
    said = "texts that win are on 1e+02 % of 10 steps: 'f' 5, '' 1, \"It's a wall.\" 1, 'A kéy.' 1, 'You kill it!' 1 and 1 more"
    assert outcomes.describe(every, TEXTS) == said
    none = "warning: no text wins its comparisons: the labels give an agent no goal"
    assert outcomes.describe(Outcomes(*np.zeros((4, 6), int)), TEXTS) == none
    edge = Outcomes(*map(np.array, ([1, 0], [0, 1], [0, 0], [1, 999])))
    assert outcomes.describe(edge, TEXTS) == "texts that win are on 0.1 % of 1,000 steps: '' 1"


def test_the_advised_threshold_lies_above_the_ties_and_pays_the_goal_alone() -> None:
    normalised, steps = np.array([-0.1, 0.2, 0.15, 9.0, 3.0]), np.array([4900, 2400, 600, 90, 10])
    tied, empty, none = (np.array(each, bool) for each in ([1, 1, 1, 0, 1], [1, 0, 0, 0, 0], [0] * 5))
    given = normalised, steps, tied, empty, np.array([0.175, 0.5])
    advice = threshold.advise(*given)
    shares = {"paid_shares": [0.3125, 0.0125], "lump_share": 0.98875, "lump_edge": 0.2}
    assert advice == {**shares, "threshold": 0.25, "paid_share": 0.0125}
    statistics = {"quantile_levels": [0.5, 0.75], "quantiles": [0.175, 0.5], "advice": advice}
    said = "pays {} % of the dataset's steps; reward.threshold=auto (0.25, above the ties and the empty text) pays 1.2 %\n"
    warning = (
        "warning: the quantile's threshold 0.17 lies within the texts that the judge called ties (99 % of the steps, up to "
        "0.20), so it pays for texts that the goal does not ask for: train the agent with --config.reward.threshold=auto\n"
    )
    assert threshold.describe(statistics, 0.6) == f"reward.quantile=0.6 {said.format(31)}{warning}"
    assert threshold.describe(statistics, 0.75) == f"reward.quantile=0.75 {said.format(1.2)}"
    at = {**statistics, "quantiles": [0.2, 0.5]}
    assert threshold.describe(at, 0.5) == f"reward.quantile=0.5 {said.format(31)}"
    note = "pays 1.2 % of the steps; 99 % of the steps show texts that the judge called ties"
    assert threshold.facts(statistics) == [("advised threshold", "0.25", note)]
    untied = threshold.advise(normalised, steps, none, empty, np.array([0.175, -1.0]))
    assert untied == {"paid_shares": [0.3125, 1.0], "lump_share": 0.0, "lump_edge": None, "threshold": -0.05, "paid_share": 0.3875}  # fmt: skip
    unadvised = {
        **statistics,
        "advice": threshold.advise(normalised, steps, none, none, np.array([0.175, -1.0])),
    }
    assert threshold.describe(unadvised, 0.9) == "reward.quantile=0.9 pays 100 % of the dataset's steps\n"
    assert threshold.facts(unadvised) == threshold.facts({}) == []
    assert (
        threshold.describe({**statistics, "advice": None}, 0.5) == threshold.describe(statistics, None) == ""
    )
