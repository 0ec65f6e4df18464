"""Statistics of what a network reads: parameters without a gradient, which each update moves by its
rows.
"""

from __future__ import annotations

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

Array = jax.Array
# Collection of a call's statistics, which are computed where it is mutable; the running ones are
# parameters.
STATISTICS = "statistics"
# PyTorch's default rate of the moving statistics of a batch norm.
_MOVING_RATE = 0.1
# Share of a number below which a deviation is the rounding of float32.
_ROUNDING = 6e-8
# The same of numbers in two parts.
_ROUNDING_OF_PARTS = _ROUNDING**2
# The least deviation, of numbers that are all 0.
_TINY = 1e-30
# Standard deviations from the mean beyond which a number is cut off, as in Stable-Baselines3's
# VecNormalize.
_LIMIT = 10.0


class RunningScale(nn.Module):
    """Numbers float32 [N, F], each less its mean and divided by its standard deviation, at most 10
    and at least -10.

    Mean and variance are those of all rows of earlier updates. Before the first update they are 0
    and 1. Means are kept less `shift`, the mean of the first update's rows: beside a large offset,
    float32 would lose the digits in which numbers differ. Numbers with more digits than float32 has
    come in two parts, whose sum they are: `rest` float32 [N, F] is what rounding took.
    """

    @nn.compact
    def __call__(self, x: Array, rest: Array | None = None) -> Array:
        parts = [x] if rest is None else [x, rest]
        chex.assert_rank(parts, 2)
        chex.assert_equal_shape(parts)
        chex.assert_type(parts, jnp.float32)
        size = x.shape[-1:]
        shift = jax.lax.stop_gradient(self.param("shift", nn.initializers.zeros_init(), size))
        mean = jax.lax.stop_gradient(self.param("mean", nn.initializers.zeros_init(), size))
        variance = jax.lax.stop_gradient(self.param("variance", nn.initializers.ones_init(), size))
        self.param("rows", nn.initializers.zeros_init(), ())
        # In this order, since the sum of both parts alone would be rounded.
        small = 0.0 if rest is None else rest
        shifted = (x - shift) + small
        if self.is_mutable_collection(STATISTICS):
            rough_mean = jnp.mean(x - shift, axis=0)
            deviation = ((x - shift) - rough_mean) + small
            offset = jnp.mean(deviation, axis=0)
            spread = jnp.mean(jnp.square(deviation - offset), axis=0)
            self.variable(STATISTICS, "shift", jnp.zeros, size).value = rough_mean
            self.variable(STATISTICS, "mean", jnp.zeros, size).value = offset
            self.variable(STATISTICS, "variance", jnp.ones, size).value = spread
            self.variable(STATISTICS, "rows", jnp.zeros, ()).value = jnp.float32(len(x))
        rounding = _ROUNDING if rest is None else _ROUNDING_OF_PARTS
        floor = jnp.maximum(rounding * jnp.abs(shift + mean), _TINY)
        scaled = (shifted - mean) / jnp.maximum(jnp.sqrt(variance), floor)
        return jnp.clip(scaled, -_LIMIT, _LIMIT)


def with_statistics(params: Any, statistics: Any) -> Any:
    """Parameters whose running statistics are moved by those of a call.

    Args:
      params: tree of parameters. Each batch norm has `mean` [C], `variance` [C] and `count`, the
        number of calls so far; each `RunningScale` has `shift` [F], `mean` [F], `variance` [F] and
        `rows`, the number of rows so far.
      statistics: the collection `STATISTICS` of the call, the same tree down to these layers,
        without other layers.
    """
    if not statistics:
        return params
    if "rows" in statistics:
        return _joined(params, statistics)
    if "mean" in statistics:
        return _moved(params, statistics)
    return {
        name: with_statistics(child, statistics.get(name, {})) for name, child in params.items()
    }


def _moved(params: Any, statistics: Any) -> Any:
    """The plain mean of the statistics of the first ten calls, then a moving mean of rate 0.1."""
    count = params["count"] + 1.0
    rate = jnp.maximum(_MOVING_RATE, 1.0 / count)
    mean = params["mean"] + rate * (statistics["mean"] - params["mean"])
    variance = params["variance"] + rate * (statistics["variance"] - params["variance"])
    return {**params, "mean": mean, "variance": variance, "count": count}


def _joined(params: Any, statistics: Any) -> Any:
    """Mean and variance of all rows, those of the call included (Chan, Golub and LeVeque 1979).

    The call's mean is `shift` + `mean` of its statistics, less the running `shift`.
    """
    is_first = params["rows"] == 0
    shift = jnp.where(is_first, statistics["shift"], params["shift"])
    call_mean = jnp.where(is_first, 0.0, statistics["shift"]) + statistics["mean"]

    rows = params["rows"] + statistics["rows"]
    share = statistics["rows"] / rows
    difference = call_mean - params["mean"]
    mean = params["mean"] + share * difference
    within = (1 - share) * params["variance"] + share * statistics["variance"]
    between = share * (1 - share) * jnp.square(difference)
    return {"shift": shift, "mean": mean, "variance": within + between, "rows": rows}
