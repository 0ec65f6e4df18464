"""The running scale of the value targets by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.rl.algorithms import appo
from motif_jax.rl.algorithms.appo import ValueStatistics

TARGETS = jnp.array([[1.0, 3.0], [100.0, 5.0]])
# The 100 does not count: mean 3, mean of squares 35 / 3.
VALID = jnp.array([[True, True], [False, True]])
STD = np.sqrt(35 / 3 - 9)


def updated(
    rate: float, targets: jnp.ndarray = TARGETS, valid: jnp.ndarray = VALID
) -> ValueStatistics:
    return appo.moved(appo.first_statistics(), targets, valid, rate)


def test_before_the_first_target_values_are_not_scaled() -> None:
    mean, std = appo.moments(appo.first_statistics())

    assert (float(mean), float(std)) == (0.0, 1.0)


@pytest.mark.parametrize("rate", [0.01, 1.0])
def test_after_one_update_moments_are_those_of_the_valid_targets(rate: float) -> None:
    mean, std = appo.moments(updated(rate))

    np.testing.assert_allclose([mean, std], [3.0, STD], rtol=1e-4)


def test_later_targets_weigh_by_the_rate() -> None:
    later = jnp.full((2, 2), 7.0)

    statistics = appo.moved(updated(0.25), later, jnp.ones((2, 2), bool), 0.25)

    mean, std = appo.moments(statistics)
    # Weights 0.75 * 0.25 and 0.25, of which the sum is 0.4375.
    expected_mean = (0.1875 * 3 + 0.25 * 7) / 0.4375
    expected_second = (0.1875 * 35 / 3 + 0.25 * 49) / 0.4375
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-5)
    np.testing.assert_allclose(std, np.sqrt(expected_second - expected_mean**2), rtol=1e-4)


def test_an_update_without_a_valid_target_changes_nothing() -> None:
    before = updated(0.25)

    after = appo.moved(before, TARGETS, jnp.zeros((2, 2), bool), 0.25)

    np.testing.assert_allclose(after, before, rtol=1e-6)


def test_the_scale_of_equal_targets_is_their_rounding() -> None:
    statistics = updated(0.5, targets=jnp.full((2, 2), 4.0))

    mean, std = appo.moments(statistics)

    np.testing.assert_allclose([mean, std], [4.0, 4 * 6e-8], rtol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e5, 1e6])
def test_the_deviation_of_targets_beside_a_large_mean_is_numpys(offset: float) -> None:
    rng = np.random.default_rng(0)
    statistics = appo.first_statistics()
    for _ in range(20):
        targets = (offset + rng.integers(0, 2, 2048)).astype(np.float32)
        valid = jnp.ones(2048, bool)
        statistics = appo.moved(statistics, jnp.asarray(targets), valid, 0.1)

    mean, std = appo.moments(statistics)
    np.testing.assert_allclose(std, 0.5, rtol=0.02)
    np.testing.assert_allclose(mean, offset + 0.5, rtol=1e-7, atol=0.01)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_the_scale_follows_the_size_of_targets(size: float) -> None:
    _, std = appo.moments(updated(1.0, targets=TARGETS * size))

    np.testing.assert_allclose(std, STD * size, rtol=1e-4)


def test_before_the_first_target_values_are_zero() -> None:
    assert appo.scale_of_values(appo.first_statistics()) == 0
    assert appo.scale_of_values(updated(1.0)) > 0
