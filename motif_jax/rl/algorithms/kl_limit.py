"""Ends an update early, as `algorithm.kl_limit` says: at the first minibatch that finds the policy
too far from the one that played.

The step of this minibatch is not taken, and later minibatches are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from motif_jax.core.training import finite
from motif_jax.rl.algorithms import update

Array = jax.Array
Metrics = dict[str, Array]
State = TypeVar("State", bound=Any)
# Metric of updates with a limit: the share of the minibatches whose step was taken.
_TAKEN = "policy/minibatches_taken"


class _Progress(NamedTuple):
    """The carry of `run_until_skipped`."""

    state: Any
    metrics: Metrics  # sums over the minibatches so far, and extremes
    minibatches: Array  # int32 scalar, how many were learned from or skipped
    was_taken: Array  # bool scalar, the last minibatch was not skipped


def keep_if_near(limit: float, old: State, new: State, metrics: Metrics) -> tuple[State, Metrics]:
    """`old` with the parameters of `new` where the policy is within the limit, else `old`; and the
    metrics, with whether they were taken.

    Args:
      limit: greatest `policy/kl` of `metrics`, in nats.
      old, new: training states with `params` and `opt_state`, before and after a minibatch's step.
    """
    is_near = metrics["policy/kl"] <= limit
    # `policy/kl` is of the parameters before the step, which came from earlier minibatches.
    params = finite.keep_if(is_near, new.params, old.params)
    opt_state = finite.keep_if(is_near, new.opt_state, old.opt_state)
    return old._replace(params=params, opt_state=opt_state), {**metrics, _TAKEN: is_near * 1.0}


def run_until_skipped(
    step: Callable[[State, Array], tuple[State, Metrics]], state: State, order: Array
) -> tuple[State, Metrics]:
    """Runs `step`, which ends with `keep_if_near`, over minibatches until it skips one.

    Args:
      order: [minibatches, ...], the second argument of each step.

    Returns:
      The last state, and metrics of the minibatches that `step` was called with.
    """
    neutral: dict[Any, float] = {jnp.min: jnp.inf, jnp.max: -jnp.inf}
    pairwise: dict[Any, Callable[..., Array]] = {jnp.min: jnp.minimum, jnp.max: jnp.maximum}
    # The loop's carry needs all metrics before the first minibatch.
    names = jax.eval_shape(step, state, order[0])[1]
    start = {name: jnp.full((), neutral.get(update.EXTREMES.get(name), 0.0)) for name in names}

    def is_unfinished(progress: _Progress) -> Array:
        return (progress.minibatches < len(order)) & progress.was_taken

    def run_one(progress: _Progress) -> _Progress:
        new, metrics = step(progress.state, order[progress.minibatches])
        joined = {}
        for name, value in metrics.items():
            join = pairwise.get(update.EXTREMES.get(name), jnp.add)
            joined[name] = join(progress.metrics[name], value)
        return _Progress(new, joined, progress.minibatches + 1, metrics[_TAKEN] > 0)

    first = _Progress(state, start, jnp.zeros((), jnp.int32), jnp.array(True))
    # Not a scan, which would run the rest of the minibatches for nothing.
    end = jax.lax.while_loop(is_unfinished, run_one, first)

    metrics = {}
    for name, value in end.metrics.items():
        metrics[name] = value if name in update.EXTREMES else value / end.minibatches
    # Of all minibatches, also of those that came after the skipped one.
    metrics[_TAKEN] = end.metrics[_TAKEN] / len(order)
    return end.state, metrics
