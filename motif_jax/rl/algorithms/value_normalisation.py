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
# Share of a mean below which a deviation is the rounding of float32.
_ROUNDING = 6e-8
# The least scale, where all targets are 0.
_TINY = 1e-30


class ValueStatistics(NamedTuple):
    """Decayed statistics of the value targets of all updates; float32 scalars."""

    mean: Array
    variance: Array
    weight: Array  # 0 before the first targets, then towards 1


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
    # From a rough mean first: of large targets the plain mean of float32 has lost the digits in
    # which they differ.
    rough_mean = reductions.mean(target, valid, axis_name)
    deviation = target - rough_mean
    offset = reductions.mean(deviation, valid, axis_name)
    batch_mean = rough_mean + offset
    batch_variance = reductions.mean(jnp.square(deviation - offset), valid, axis_name)

    weight = (1 - share) * statistics.weight + share
    # Of everything seen so far, by weight; divided by it, statistics need no start at 0.
    part = share / jnp.maximum(weight, _TINY)
    difference = batch_mean - statistics.mean
    mean = statistics.mean + part * difference
    within = (1 - part) * statistics.variance + part * batch_variance
    between = part * (1 - part) * jnp.square(difference)
    return ValueStatistics(mean, within + between, weight)


def moments(statistics: ValueStatistics) -> tuple[Array, Array]:
    """Mean and standard deviation of the targets, before the first of them 0 and 1; float32
    scalars.

    The deviation is at least the rounding of the mean: a scale of equal targets would be noise.
    """
    rounding = _ROUNDING * jnp.abs(statistics.mean)
    std = jnp.maximum(jnp.sqrt(statistics.variance), jnp.maximum(rounding, _TINY))
    return statistics.mean, jnp.where(statistics.weight == 0, 1.0, std)


def scale_of_values(statistics: ValueStatistics) -> Array:
    """What the value head's output is multiplied by: the targets' deviation, and 0 before the first
    of them.

    An untrained head says nothing, and its values would be the first targets: where rewards are a
    millionth, the scale would be the head's for as long as the training goes on.
    """
    return jnp.where(statistics.weight == 0, 0.0, moments(statistics)[1])
