"""Metrics of pairs against plain computations."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.trainers import reward_evaluation as evaluation


def test_calibration_of_a_known_case():
    # Confidence 0.75 twice (right once), 0.95 once (right), a tie that does not count.
    sure = np.log(np.array([3.0, 3.0, 19.0, 5.0]))
    rewards = np.stack([sure, np.zeros(4)], axis=1)
    found = evaluation.calibration(rewards, np.array([0, 1, 0, 2]))
    assert found["error"] == pytest.approx((2 * abs(0.5 - 0.75) + abs(1 - 0.95)) / 3)
    assert [row["pairs"] for row in found["bins"]] == [2, 1]
    assert np.isnan(evaluation.calibration(rewards[:0], np.zeros(0, int))["error"])


def test_mean_over_batches_is_not_the_mean():
    values = np.array([1.0, 0.0, 0.0, 1.0, 1.0])
    counted = np.array([True, True, False, False, True])
    assert evaluation.mean_over_batches(values, counted, 2) == pytest.approx((0.5 + 1.0) / 2)
    assert np.isnan(evaluation.mean_over_batches(values, np.zeros(5, bool), 2))


def test_cross_entropy_is_stable():
    rewards = np.array([[1000.0, 0.0], [0.0, 1000.0], [1.0, 1.0]], np.float32)
    targets = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(evaluation.cross_entropy(rewards, targets), [0, 1000, np.log(2)], rtol=1e-6)
