"""The training state and the optimiser step of a model, or of an ensemble of independent
members.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax


class EnsembleState(NamedTuple):
    """Parameters, float32, and the optimiser's state; an ensemble has a leading axis of members in
    both.
    """

    params: Any
    opt_state: Any


def init_state(
    network: Any, optimizer: optax.GradientTransformation, key: jax.Array, members: int = 1
) -> EnsembleState:
    """A fresh state; the members of an ensemble differ in their initial parameters, which `key`
    decides.
    """
    if members == 1:
        params = network.init(key)
        return EnsembleState(params, optimizer.init(params))
    params = jax.vmap(network.init)(jax.random.split(key, members))
    return EnsembleState(params, jax.vmap(optimizer.init)(params))


def make_train_step(
    loss: Callable[..., tuple[jax.Array, dict[str, jax.Array]]],
    optimizer: optax.GradientTransformation,
    members: int = 1,
    axis_name: str | None = None,
) -> Callable[..., tuple[EnsembleState, dict[str, jax.Array]]]:
    """Returns `step(state, *inputs) -> (state, metrics)`, the metrics of the loss and
    `gradient_norm`.

    Args:
      loss: (params, *inputs) -> (value summed over members, metrics).
      optimizer: of one member.
      axis_name: mapped axis over which the gradient is summed.
    """
    # The loss is a sum over members, so each member's gradient is that of its own loss.
    gradient_of = jax.value_and_grad(loss, has_aux=True)
    update = optimizer.update if members == 1 else jax.vmap(optimizer.update)

    def step(state: EnsembleState, *inputs: Any) -> tuple[EnsembleState, dict[str, jax.Array]]:
        (_, metrics), gradient = gradient_of(state.params, *inputs)
        if axis_name:
            gradient = jax.lax.psum(gradient, axis_name)
        updates, opt_state = update(gradient, state.opt_state, state.params)
        # Before the optimiser's clip, and of all members together.
        metrics["gradient_norm"] = optax.tree.norm(gradient)
        return EnsembleState(optax.apply_updates(state.params, updates), opt_state), metrics

    return step
