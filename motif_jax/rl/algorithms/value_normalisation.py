"""Running scale of the value targets (van Hasselt et al. 2016, "PopArt").

The network's value head predicts (V - mean) / std. With 'popart' the head is rescaled whenever the statistics move, so that V itself
does not; with 'running' the head has to learn it. V is clipped around V as it was played: with 'popart' in units of reward, with
'running' in the head's units of that time.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.core.training import reductions

Array = jax.Array
MINIMUM_STD = 1e-2


class ValueStatistics(NamedTuple):
    """Decayed sums of the value targets' means, of the means of their squares, and of ones; float32 scalars."""

    first: Array
    second: Array
    weight: Array


def initial() -> ValueStatistics:
    """Statistics of no targets: mean 0 and standard deviation 1."""
    return ValueStatistics(*(jnp.zeros((), jnp.float32) for _ in range(3)))


def update(
    statistics: ValueStatistics, target: Array, valid: Array, rate: float, axis_name: str | None = None
) -> ValueStatistics:
    """Moves the statistics towards those of `target` [...] where `valid`, if anywhere, by `rate` in (0, 1]."""
    chex.assert_equal_shape([target, valid])
    count = reductions.total(valid.astype(jnp.float32), axis_name)
    share = jnp.where(count > 0, rate, 0.0)
    first = reductions.mean(target, valid, axis_name)
    seen = ValueStatistics(first, reductions.mean(jnp.square(target), valid, axis_name), jnp.ones(()))
    return jax.tree.map(lambda old, new: (1 - share) * old + share * new, statistics, seen)


def moments(statistics: ValueStatistics) -> tuple[Array, Array]:
    """Mean and standard deviation (at least 0.01) of the targets; float32 scalars."""
    empty = statistics.weight == 0
    weight = jnp.where(empty, 1.0, statistics.weight)
    mean, second = statistics.first / weight, statistics.second / weight
    std = jnp.sqrt(jnp.maximum(second - jnp.square(mean), MINIMUM_STD**2))
    return mean, jnp.where(empty, 1.0, std)
