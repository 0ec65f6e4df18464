"""What labels say about messages, and the threshold that follows from it."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.datasets.pairs import outcomes, threshold


def one_goal(pairs: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Ids [P, 2, 1] and labels [P] of random pairs where message 3 beats all others, which tie."""
    ids = np.random.default_rng(0).choice(4, size=(pairs, 2, 1), p=(0.6, 0.3, 0.09, 0.01)).astype(np.int32)
    first, second = ids[:, 0, 0] == 3, ids[:, 1, 0] == 3
    return ids, np.where(first == second, 2, np.where(first, 0, 1)).astype(np.int8)


def test_ties_and_what_the_goal_asks_for_are_told_apart() -> None:
    ids, labels = one_goal()
    found = outcomes.count_outcomes(ids, labels, 4)
    assert (found.tied.tolist(), found.wanted.tolist()) == ([True, True, True, False], [3])
    assert found.steps.sum() == ids.size
    assert found.wins[3] == (labels < 2).sum()
    said = outcomes.describe(found, ["", "It's a wall.", "You see here a key.", "You kill it!"])
    assert ("'You kill it!'" in said, "warning" in said) == (True, False)


def test_a_goal_that_hardly_occurs_is_a_warning() -> None:
    ids, labels = one_goal()
    tie, texts = np.full_like(labels, 2), ["", "a", "b", "c"]
    common, tied = np.concatenate([ids, *[np.zeros_like(ids)] * 50]), np.concatenate([labels, *[tie] * 50])
    found = outcomes.describe(outcomes.count_outcomes(common, tied, 4), texts)
    assert "warning: the goal occurs on fewer than 0.1%" in found
    assert "no text wins" in outcomes.describe(outcomes.count_outcomes(ids, tie, 4), texts)


def test_the_advised_threshold_lies_above_the_ties_and_pays_the_goal_alone() -> None:
    ids, labels = one_goal()
    found = outcomes.count_outcomes(ids, labels, 4)
    normalised = np.array([-0.1, 0.2, 0.15, 9.0])
    empty = np.array([True, False, False, False])
    advice = threshold.advise(normalised, found.steps, found.tied, empty, np.array([0.175, 0.5]))
    assert advice["lump_edge"] == 0.2
    assert 0.2 < advice["threshold"] < 0.3
    goal, both = found.steps[3] / ids.size, found.steps[[1, 3]].sum() / ids.size
    assert [advice["paid_share"], *advice["paid_shares"]] == pytest.approx([goal, both, goal])
    statistics = {"quantile_levels": [0.5, 0.75], "quantiles": [0.175, 0.5], "advice": advice}
    assert ["warning" in threshold.describe(statistics, share) for share in (0.5, 0.75)] == [True, False]
    assert threshold.describe({**statistics, "advice": None}, 0.5) == ""
