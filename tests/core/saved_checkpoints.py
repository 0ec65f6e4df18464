"""Checkpoints of two steps, for the tests of what becomes of them."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.checkpoints import Checkpoints

PARAMS = jax.device_put(
    {
        "dense": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3)},
        "bias": np.ones(3, jnp.bfloat16),
    }
)


def two_steps(folder: Path) -> Path:
    """Saves steps 1 and 2, the second with the better return."""
    with Checkpoints(folder, keep_best="return") as checkpoints:
        for step in (1, 2):
            items = {"params": PARAMS, "counters": {"steps": step}}
            checkpoints.save(step, items, {"return": step}, asynchronous=False)
    return folder
