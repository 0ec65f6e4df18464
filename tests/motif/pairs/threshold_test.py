from __future__ import annotations

import numpy as np

from motif_jax.motif.pairs import outcomes, threshold
from motif_jax.motif.pairs.outcomes import Outcomes
from tests.recorded_outputs import compared

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
    found = outcomes.count_outcomes(ids, np.array([0, 0, 1, 0, 2, 2, 3], np.int8), 6)
    assert (found.wins.tolist(), found.losses.tolist()) == ([2, 1, 0, 3, 0, 0], [1, 2, 2, 0, 1, 0])
    assert (found.ties.tolist(), found.steps.tolist()) == ([3, 1, 2, 0, 2, 0], [7, 9, 5, 4, 3, 0])
    assert (found.tied.tolist(), found.wanted.tolist()) == ([1, 0, 1, 0, 1, 0], [3])
    said = "texts that win are on 14 % of 28 steps: 'You kill it!' 4"
    assert outcomes.describe(found, TEXTS) == said


def test_what_is_said_of_wins_and_of_thresholds(record: bool) -> None:
    """A message that wins nine of ten is wanted, one that ties in half of its comparisons not; the edge of the ties is 0.2."""
    wins, losses, ties = [9, 9, 20, 1, 5, 0], [1, 2, 0, 0, 0, 0], [0, 0, 3, 0, 5, 0]
    some = Outcomes(*map(np.array, (wins, losses, ties, [5, 900, 7, 7, 18975, 106])))
    assert some.wanted.tolist() == [2, 3, 0]
    every = Outcomes(np.ones(6, int), *np.zeros((2, 6), int), np.array([1, 1, 1, 1, 1, 5]))
    edge = Outcomes(*map(np.array, ([1, 0], [0, 1], [0, 0], [1, 999])))
    found = [outcomes.describe(each, TEXTS) for each in (every, edge, Outcomes(*np.zeros((4, 6), int)))]
    found += [outcomes.describe(some, TEXTS, most) for most in (2, 3)]
    normalised, steps = np.array([-0.1, 0.2, 0.15, 9.0, 3.0]), np.array([4900, 2400, 600, 90, 10])
    none, tied, empty = (np.array(each, bool) for each in ([0] * 5, [1, 1, 1, 0, 1], [1, 0, 0, 0, 0]))
    quantiles = [0.175, 0.5, 0.2, -1.0]
    for of in ((tied, empty), (none, empty), (none, none)):
        advice = threshold.advise(normalised, steps, *of, np.array(quantiles))
        statistics = {"quantile_levels": [0.5, 0.75, 0.8, 0.9], "quantiles": quantiles, "advice": advice}
        found += [str(advice), *(threshold.describe(statistics, share) for share in (0.6, 0.75, 0.8, 0.95))]
        found.append(str(threshold.facts(statistics)))
    found += [threshold.describe({**statistics, "advice": None}, 0.5), threshold.describe(statistics, None)]
    assert (found[-2:], threshold.facts({})) == (["", ""], [])
    compared("advised_thresholds", {"found": "\n".join(found[:-2])}, record)
