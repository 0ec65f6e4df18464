"""Running scale of the value targets (van Hasselt et al. 2016, "PopArt").

The network's value head predicts (V - mean) / std. With 'popart' the head is rescaled whenever the
statistics move, so that V itself does not; with 'running' the head has to learn it. V is clipped
around V as it was played, by standard deviations of the targets: with 'popart' those of the update,
with 'running' those of the time when it was played.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.core.training import reductions

Array = jax.Array
MINIMUM_STD = 1e-2  # while all targets are equal


class ValueStatistics(NamedTuple):
    """Decayed sums over updates; float32 scalars."""

    first: Array  # of the value targets' means
    second: Array  # of the means of their squares
    weight: Array  # of ones: `first` and `second` are divided by it


def initial() -> ValueStatistics:
    """Statistics of no targets: mean 0 and standard deviation 1."""
    return ValueStatistics(*(jnp.zeros((), jnp.float32) for _ in range(3)))


def update(
    statistics: ValueStatistics,
    target: Array,
    valid: Array,
    rate: float,
    axis_name: str | None = None,
) -> ValueStatistics:
    """Moves the statistics by `rate` in (0, 1] towards those of `target` [...] where `valid`; not
    at all where nothing is valid.
    """
    chex.assert_equal_shape([target, valid])
    count = reductions.total(valid.astype(jnp.float32), axis_name)
    share = jnp.where(count > 0, rate, 0.0)
    first = reductions.mean(target, valid, axis_name)
    second = reductions.mean(jnp.square(target), valid, axis_name)
    of_batch = ValueStatistics(first, second, jnp.ones(()))
    return jax.tree.map(lambda old, new: (1 - share) * old + share * new, statistics, of_batch)


def moments(statistics: ValueStatistics) -> tuple[Array, Array]:
    """Mean and standard deviation (at least 0.01) of the targets; float32 scalars."""
    is_empty = statistics.weight == 0
    # The sums begin at 0: divided by their weight they are means from the first update on.
    weight = jnp.where(is_empty, 1.0, statistics.weight)
    mean = statistics.first / weight
    second = statistics.second / weight
    std = jnp.sqrt(jnp.maximum(second - jnp.square(mean), MINIMUM_STD**2))
    return mean, jnp.where(is_empty, 1.0, std)
