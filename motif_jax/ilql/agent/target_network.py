"""Target copies of parameters, updated slowly or at intervals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def soft_update(
    target: Any, online: Any, step: jax.Array, polyak: float = 0.005, copy_every: int | None = None
) -> Any:
    """The targets after a step (int32 [], 1 after the first) of the optimiser; float32, since lower precision loses small updates.

    `polyak` is the share of `online` in each update (Lillicrap et al. 2016), `copy_every` the steps between additional copies (Mnih
    et al. 2015); None: no copies.
    """
    rate: Any = polyak if copy_every is None else jnp.where(step % copy_every == 0, 1.0, polyak)
    return jax.tree.map(lambda old, new: (old + rate * (new - old)).astype(old.dtype), target, online)
