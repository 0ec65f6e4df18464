"""Learning rates and the optimiser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from motif_jax.core.config import require
from motif_jax.core.sections import DecayingOptimizer, Optimizer
from motif_jax.core.training import block_stack

Array = jax.Array
# Two int32 count the steps of a run: multiples of 2^30, and the rest. One would overflow after 2.1
# billion.
_UNIT_BITS = 30


class RateState(NamedTuple):
    """Optimiser steps taken, int32 scalar, and the learning rate of the newest, float32 scalar (0
    before the first).
    """

    steps: Array
    rate: Array


def check_warmup(optimizer: Optimizer, total_steps: int) -> None:
    """Raises UserError if a run of `total_steps` optimiser steps would end before its warm-up."""
    warmup = optimizer.warmup_steps or 0
    allowed = f"below the {total_steps:,} optimiser steps of the whole run"
    require(warmup == 0 or warmup < total_steps, "optimizer.warmup_steps", warmup, allowed)


def no_steps() -> Array:
    """A count of no steps for `add_steps`: int32 [2]."""
    return jnp.zeros(2, jnp.int32)


def add_steps(count: Array, steps: Array) -> Array:
    """A count int32 [2] with `steps`, int32 below 2^30, added; exact up to 2^61."""
    rest = count[1] + steps
    return jnp.stack([count[0] + (rest >> _UNIT_BITS), rest & ((1 << _UNIT_BITS) - 1)])


def share_done(count: Array, total: int) -> Array:
    """A count from `add_steps` as a share of `total` steps: float32 scalar."""
    # The host divides in float64. float32 would round a count above 2^24 before it is divided.
    return count[0] * np.float32((1 << _UNIT_BITS) / total) + count[1] * np.float32(1 / total)


def learning_rate(optimizer: Optimizer, count: Any, share: Any) -> Array:
    """The learning rate of one optimiser step.

    Args:
      count: optimiser steps taken before.
      share: part of the schedule that is over, from 0 to 1; more counts as 1.

    Returns:
      float32 scalar, at least final_fraction of the peak, times the warm-up's factor.
    """
    remaining = jnp.clip(1.0 - jnp.asarray(share, jnp.float32), 0.0, 1.0)
    if optimizer.schedule == "constant":
        remaining = jnp.ones_like(remaining)
    elif optimizer.schedule == "cosine":
        # Equals (1 + cos(pi * share)) / 2.
        remaining = jnp.square(jnp.sin(0.5 * jnp.pi * remaining))
    final = optimizer.final_fraction
    rate = optimizer.learning_rate * (final + (1.0 - final) * remaining)
    if optimizer.warmup_steps:
        # The first step already moves: its factor is 1 / warmup_steps, not 0.
        rate = rate * jnp.minimum(
            (jnp.asarray(count, jnp.float32) + 1.0) / optimizer.warmup_steps, 1.0
        )
    return rate


def make_schedule(optimizer: Optimizer, total_steps: int) -> optax.Schedule:
    """The learning rate as a function of the optimiser steps taken, of `total_steps` in all; it
    falls after the warm-up.
    """
    warmup = optimizer.warmup_steps or 0
    decay_steps = max(total_steps - warmup, 1)
    return lambda count: learning_rate(optimizer, count, (count - warmup) / decay_steps)


def matrices(params: Any) -> Any:
    """Which parameters have two axes or more, bool: those whose weights decay."""

    def is_matrix(path: Sequence[Any], leaf: Any) -> bool:
        axes = leaf.ndim - 1 if block_stack.is_stacked(path) else leaf.ndim
        return bool(axes > 1)

    return jax.tree.map_with_path(is_matrix, params)


def make_optimizer(
    optimizer: Optimizer, total_steps: int | None = None, decays: Callable[[Any], Any] | None = None
) -> optax.GradientTransformationExtraArgs:
    """Adam (Kingma and Ba 2015) after a clip of the global gradient norm.

    Args:
      total_steps: optimiser steps of the whole run. None: `update(..., share=...)` receives the
        share that is over.
      decays: returns which parameters of a tree decay by `optimizer.weight_decay` times the
        learning rate (Loshchilov and Hutter 2019); None for no decay.

    Returns:
      An optimiser; the last part of its state is a `RateState`.
    """
    limit = optimizer.max_gradient_norm
    clip = optax.clip_by_global_norm(limit) if limit else optax.identity()
    schedule = None if total_steps is None else make_schedule(optimizer, total_steps)

    def init(_: Any) -> RateState:
        return RateState(jnp.zeros((), jnp.int32), jnp.zeros(()))

    def update(
        updates: Any, state: RateState, params: Any = None, *, share: Any = None, **extra: Any
    ) -> tuple[Any, RateState]:
        rate = (
            learning_rate(optimizer, state.steps, share)
            if schedule is None
            else schedule(state.steps)
        )
        updates = jax.tree.map(lambda x: -rate * x, updates)
        return updates, RateState(optax.safe_increment(state.steps), rate)

    scale = optax.GradientTransformationExtraArgs(init, update)
    adam = optax.scale_by_adam(optimizer.b1, optimizer.b2, optimizer.eps)
    # After Adam's scaling and before the rate, so that the decay passes by the moments.
    if decays is not None and isinstance(optimizer, DecayingOptimizer) and optimizer.weight_decay:
        return optax.chain(
            clip, adam, optax.add_decayed_weights(optimizer.weight_decay, decays), scale
        )
    return optax.chain(clip, adam, scale)
