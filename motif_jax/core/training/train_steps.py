"""Steps of a `Task` as one compiled program, with a budget of steps that are not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# Metric of a step: whether all its other metrics are finite.
FINITE = "finite"


class Carry(NamedTuple):
    """Values that a step passes to the next one.

    Attributes:
      state: the state of the task.
      skips_left: remaining budget of steps that are not finite, int32 scalar; -1: exceeded.
      shared: arrays that do not change, see `Task.shared`.
    """

    state: Any
    skips_left: Any
    shared: Any


def make_train_steps(
    guarded_step: Callable[[Any, Any, Any, jax.Array], tuple[Any, dict[str, Any], jax.Array]],
) -> Callable[[Carry, Any], tuple[Carry, dict[str, jax.Array]]]:
    """Returns `train(carry, batches) -> (carry, metrics)`, which takes a `Task.guarded_step` for
    each batch.

    Batches and metrics have a leading axis of steps; metrics are those of the step and `FINITE`. A
    step that is not finite changes nothing; after more of these than `carry.skips_left` no later
    step changes anything either.
    """

    def guarded(carry: Carry, batch: Any) -> tuple[Carry, dict[str, jax.Array]]:
        may_apply = carry.skips_left >= 0
        state, metrics, finite = guarded_step(carry.state, carry.shared, batch, may_apply)
        # Once below zero it stays there, since `may_apply` is false from then on.
        skips_left = carry.skips_left - (~finite & may_apply).astype(jnp.int32)
        return Carry(state, skips_left, carry.shared), {**metrics, FINITE: finite}

    def train(carry: Carry, batches: Any) -> tuple[Carry, dict[str, jax.Array]]:
        # A step by itself needs no loop, in which XLA is slow on a CPU (`OfflineTrainer`).
        if jax.tree.leaves(batches)[0].shape[0] == 1:
            carry, metrics = guarded(carry, jax.tree.map(lambda leaf: leaf[0], batches))
            return carry, jax.tree.map(lambda number: number[None], metrics)

        def body(inner: Carry, batch: Any) -> tuple[Carry, dict[str, jax.Array]]:
            # The shared arrays do not change, so the loop reads them from outside instead of
            # carrying them.
            new, metrics = guarded(inner._replace(shared=carry.shared), batch)
            return new._replace(shared=None), metrics

        last, metrics = jax.lax.scan(body, carry._replace(shared=None), batches)
        return last._replace(shared=carry.shared), metrics

    return train
