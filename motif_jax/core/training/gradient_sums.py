"""Sums of a loss over micro-batches and devices: the gradient of the summed loss, divided once, and
one update.

A method gives a `SumsOf`: of one micro-batch the summed loss, the count that it is divided by, and
what else is counted. Micro-batches and devices add these sums and the gradient of the summed loss,
and the total is divided once by the count. So the result does not depend on how a batch is divided,
as it would with means of means. Functions are pure and work on one device's part of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from motif_jax.core.training import block_stack


class Sums(NamedTuple):
    """Sums over a micro-batch, a batch or devices; float32 scalars."""

    loss: jax.Array  # times the weights; in nats where it is a cross-entropy
    weight: jax.Array  # the denominator of `loss`: a number of tokens, steps or rows
    correct: jax.Array  # weight of what was predicted correctly
    counted: jax.Array | None = None  # the denominator of `correct`; None: `weight`


class TrainState(NamedTuple):
    """The state that a step changes; parameters are float32, `step` is int32, the steps taken."""

    params: Any
    opt_state: Any
    step: Any


# (trained parameters, frozen parameters, micro-batch, dropout key or None) -> sums
SumsOf = Callable[[Any, Any, Any, Any], Sums]
# (state, frozen parameters, micro-batches) -> (state, metrics)
Update = Callable[[TrainState, Any, Any], tuple[TrainState, dict[str, jax.Array]]]


def gradient_sums(
    sums_of: Callable[[Any, Any, Any, Any], Any],
    params: Any,
    frozen: Any,
    batches: Any,
    key: Any = None,
) -> tuple[Any, Any]:
    """The gradient of the summed loss of all micro-batches, and their sums.

    Args:
      sums_of: of one micro-batch, such as a `SumsOf`; sums have a `loss`, and `added` adds them.
      batches: leaves [A, B, ...], A micro-batches, run one after the other in the memory of one.
      key: of dropout, folded for each micro-batch; None: no dropout.
    """

    def loss(params: Any, batch: Any, number: Any) -> tuple[jax.Array, Any]:
        # By the micro-batch's number, so that no two of a step have the same masks.
        batch_key = None if key is None else jax.random.fold_in(key, number)
        sums = sums_of(params, frozen, batch, batch_key)
        return sums.loss, sums

    gradient = jax.grad(loss, has_aux=True)
    count = jax.tree.leaves(batches)[0].shape[0]
    first = jax.tree.map(lambda leaf: leaf[0], batches)
    if count == 1:
        return gradient(params, first, 0)

    def add(total: Any, micro_batch: tuple[Any, jax.Array]) -> tuple[Any, None]:
        batch, number = micro_batch
        return added(total, gradient(params, batch, number)), None

    # The first one is in the loop too: outside, it would double the program.
    zeros = nothing(jax.eval_shape(gradient, params, first, 0))
    total, _ = jax.lax.scan(add, zeros, (batches, jnp.arange(count)))
    return total


def make_update(
    sums_of: SumsOf,
    optimizer: optax.GradientTransformation,
    reduce: Callable[[Any], Any],
    key_of: Callable[[jax.Array], Any] | None = None,
) -> Update:
    """Makes the step of one device with its part of a batch.

    Args:
      optimizer: receives the gradient of the mean loss.
      reduce: adds a tree over devices: `psum` under pmap or shard_map, the identity under jit over
          sharded arrays.
      key_of: (step) -> dropout key, different on each device; None: no dropout.

    Returns:
      `update(state, frozen, batches) -> (state, metrics)`; for `batches` see `gradient_sums`.
      Metrics: the mean `loss`, `accuracy`, the sum of the weights (`tokens`), `gradient_norm`
      before any clip.
    """

    def update(
        state: TrainState, frozen: Any, batches: Any
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        key = None if key_of is None else key_of(state.step)
        # Outermost, so that gradients and moments are stacked too, and the optimiser's program is
        # as short as the blocks'.
        state, frozen = block_stack.stacked_for_loop((state, frozen))
        # Sums over micro-batches, then over devices; the division below is the only one.
        gradient, sums = reduce(gradient_sums(sums_of, state.params, frozen, batches, key))

        # A batch without targets has weight 0.
        weight = jnp.maximum(sums.weight, 1e-9)
        counted = weight
        if sums.counted is not None:
            counted = jnp.maximum(sums.counted, 1e-9)
        gradient = jax.tree.map(lambda leaf: leaf / weight, gradient)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = {
            "loss": sums.loss / weight,
            "accuracy": sums.correct / counted,
            "tokens": sums.weight,
            # Of the mean gradient, before the optimiser clips it.
            "gradient_norm": optax.tree.norm(gradient),
        }
        new_state = TrainState(params, opt_state, state.step + 1)
        return block_stack.unstacked(new_state), metrics

    return update


class Spread(NamedTuple):
    """Sum, number of entries, minimum and maximum; float32 scalars."""

    total: jax.Array
    entries: jax.Array
    minimum: jax.Array
    maximum: jax.Array


def spread(values: jax.Array, mask: jax.Array) -> Spread:
    """The spread of `values` float32 [...] under `mask` bool [...], without gradient."""
    chex.assert_equal_shape([values, mask])
    values = jax.lax.stop_gradient(values)
    return Spread(
        jnp.sum(jnp.where(mask, values, 0.0)),
        jnp.sum(mask, dtype=jnp.float32),
        jnp.min(values, initial=jnp.inf, where=mask),
        jnp.max(values, initial=-jnp.inf, where=mask),
    )


def _is_spread(node: Any) -> bool:
    return isinstance(node, Spread)


def added(one: Any, other: Any) -> Any:
    """Adds two trees; joins the spreads in them."""

    def add(x: Any, y: Any) -> Any:
        if not _is_spread(x):
            return x + y
        return Spread(
            x.total + y.total,
            x.entries + y.entries,
            jnp.minimum(x.minimum, y.minimum),
            jnp.maximum(x.maximum, y.maximum),
        )

    return jax.tree.map(add, one, other, is_leaf=_is_spread)


def nothing(tree: Any) -> Any:
    """The zero of `added` for a tree of arrays or shapes: zeros, and spreads of no numbers."""

    def none(leaf: Any) -> Any:
        if not _is_spread(leaf):
            return jnp.zeros(leaf.shape, leaf.dtype)
        return Spread(jnp.float32(0), jnp.float32(0), jnp.float32(jnp.inf), jnp.float32(-jnp.inf))

    return jax.tree.map(none, tree, is_leaf=_is_spread)


def over_devices(tree: Any, axis: str) -> Any:
    """Adds the trees of all devices, as `added` does."""
    if jax.lax.axis_size(axis) == 1:  # a sum over one device would be a copy
        return tree

    def reduce(leaf: Any) -> Any:
        if not _is_spread(leaf):
            return jax.lax.psum(leaf, axis)
        # Divided only in `named`, since devices may have unequal numbers of entries.
        total, entries = jax.lax.psum((leaf.total, leaf.entries), axis)
        minimum = jax.lax.pmin(leaf.minimum, axis)
        maximum = jax.lax.pmax(leaf.maximum, axis)
        return Spread(total, entries, minimum, maximum)

    return jax.tree.map(reduce, tree, is_leaf=_is_spread)


def named(spreads: Mapping[str, Spread]) -> dict[str, jax.Array]:
    """The metrics NAME_mean, NAME_min and NAME_max of each spread; zeros where it has no
    numbers.
    """
    metrics: dict[str, jax.Array] = {}
    for name, numbers in spreads.items():
        # An empty spread has infinities, by which the guard would take the step for one that is not
        # finite.
        is_empty = numbers.entries == 0
        mean = numbers.total / jnp.maximum(numbers.entries, 1.0)
        metrics[f"{name}_mean"] = jnp.where(is_empty, 0.0, mean)
        metrics[f"{name}_min"] = jnp.where(is_empty, 0.0, numbers.minimum)
        metrics[f"{name}_max"] = jnp.where(is_empty, 0.0, numbers.maximum)
    return metrics
