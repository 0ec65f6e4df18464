"""Target copies of parameters, updated slowly or at intervals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def soft_update(
    target: Any, online: Any, step: jax.Array, polyak: float = 0.005, copy_every: int | None = None
) -> Any:
    """The targets after a step of the optimiser: target + polyak (online - target), leaf by leaf.

    Args:
      target, online: trees of one structure; float32, since lower precision loses small updates.
      step: int32 [], 1 after the first step.
      polyak: the share of `online` in each update (Lillicrap et al. 2016).
      copy_every: steps between additional copies of `online` (Mnih et al. 2015); None: no copies.
    """
    # Chosen by a number, not a branch: `step` is known on the device alone.
    rate: Any = polyak
    if copy_every is not None:
        rate = jnp.where(step % copy_every == 0, 1.0, polyak)
    return jax.tree.map(
        lambda old, new: (old + rate * (new - old)).astype(old.dtype), target, online
    )
