"""The policy over real numbers: what it draws, its density and its entropy."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.nets import squashed_gaussian

# Means and the head's numbers for the deviations, of two numbers of an action.
OUTPUTS = np.array([[0.0, 0.0, 0.0, 0.0], [0.4, -1.2, 0.7, -0.9], [-2.0, 0.1, -3.0, 2.0]])


def test_an_untrained_head_spreads_actions_nearly_evenly() -> None:
    mean, log_std = squashed_gaussian.moments(np, np.zeros((1, 4)))
    np.testing.assert_array_equal(mean, 0)
    np.testing.assert_allclose(log_std, 0, atol=1e-12)
    # Two numbers that are spread evenly have the entropy 2 ln 2.
    entropy = squashed_gaussian.entropy(np, np.zeros((1, 4)))[0]
    assert 2 * math.log(2) - 0.06 < entropy < 2 * math.log(2)


@pytest.mark.slow
@pytest.mark.parametrize("row", range(len(OUTPUTS)))
def test_the_density_of_all_actions_adds_up_to_one(row: int) -> None:
    edges = np.linspace(-12, 12, 2001)
    numbers = np.tanh((edges[1:] + edges[:-1]) / 2)
    widths = np.diff(np.tanh(edges))
    grid = np.stack(np.meshgrid(numbers, numbers, indexing="ij"), axis=-1)

    log_prob = squashed_gaussian.log_prob(
        np, np.broadcast_to(OUTPUTS[row], (*grid.shape[:2], 4)), grid
    )

    assert np.sum(np.exp(log_prob) * np.outer(widths, widths)) == pytest.approx(1, abs=1e-3)


def test_the_entropy_is_minus_the_draws_mean_log_density() -> None:
    normal = np.random.default_rng(0).standard_normal((100_000, 3, 2))
    actions = squashed_gaussian.squashed(np, OUTPUTS, normal)

    sampled = -squashed_gaussian.log_prob(np, OUTPUTS, actions).mean(axis=0)

    assert np.abs(actions).max() < 1
    np.testing.assert_allclose(squashed_gaussian.entropy(np, OUTPUTS), sampled, atol=0.02)


def test_numpy_and_jax_agree() -> None:
    normal = np.random.default_rng(1).standard_normal((3, 2))
    outputs = jnp.array(OUTPUTS, jnp.float32)
    actions = squashed_gaussian.squashed(np, OUTPUTS, normal)
    on_device = squashed_gaussian.squashed(jnp, outputs, jnp.array(normal, jnp.float32))
    np.testing.assert_allclose(on_device, actions, atol=1e-6)
    for function in (
        squashed_gaussian.log_prob,
        lambda xp, outputs, _: squashed_gaussian.entropy(xp, outputs),
    ):
        expected = function(np, OUTPUTS, actions)
        np.testing.assert_allclose(
            function(jnp, outputs, jnp.array(actions, jnp.float32)), expected, rtol=1e-4
        )


def test_extreme_outputs_give_finite_numbers_and_gradients() -> None:
    outputs = jnp.array([1e3, -1e3, 1e4, -1e4])

    def loss(outputs: jax.Array) -> jax.Array:
        action = squashed_gaussian.squashed(jnp, outputs, jnp.array([3.0, -3.0]))
        return squashed_gaussian.log_prob(jnp, outputs, action) + squashed_gaussian.entropy(
            jnp, outputs
        )

    value, gradient = jax.value_and_grad(loss)(outputs)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
