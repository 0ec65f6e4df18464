"""The coefficient of the penalty on the divergence from a reference, by hand."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from motif_jax.rl.algorithms import ppo


@pytest.mark.parametrize(
    ("target", "kl", "expected"),
    [
        (6.0, 9.0, 0.2 * (1 + 0.2 * 256 / 10_000)),  # a relative error of a half counts as a fifth
        (6.0, 5.7, 0.2 * (1 - 0.05 * 256 / 10_000)),
        (6.0, -1.0, 0.2 * (1 - 0.2 * 256 / 10_000)),
    ],
)
def test_the_coefficient_follows_the_divergence(target: float, kl: float, expected: float) -> None:
    actions = jnp.float32(256)
    coefficient = ppo.adapted_coefficient(
        jnp.float32(0.2), jnp.float32(kl), actions, target, 10_000
    )
    assert float(coefficient) == pytest.approx(expected, rel=1e-6)
