"""The penalty for leaving a reference, and its controller, by hand."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from motif_jax.rl.algorithms import kl_penalty


def test_the_coefficient_follows_the_divergence() -> None:
    for target, kl, expected in (
        (6.0, 9.0, 0.2 * (1 + 0.2 * 256 / 10_000)),  # half too far counts as a fifth
        (6.0, 5.7, 0.2 * (1 - 0.05 * 256 / 10_000)),
        (6.0, -1.0, 0.2 * (1 - 0.2 * 256 / 10_000)),
        (None, 9.0, 0.2),
    ):
        found = kl_penalty.Controller(target, 10_000).adapted(*map(jnp.float32, (0.2, kl, 256)))
        assert float(found) == pytest.approx(expected, rel=1e-6)
