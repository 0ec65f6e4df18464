"""The states of a batch at some of its positions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from motif_jax.lm.model import States


def chosen_states(states: jax.Array, positions: jax.Array) -> jax.Array:
    """The states [B, T, D] at `positions` int32 [B, K]: [B, K, D]."""
    return jnp.take_along_axis(states, positions[..., None], axis=1)


def states_at(states: States, positions: jax.Array, detach: bool = False) -> States:
    """All of the states at `positions` int32 [B, K], without gradient if `detach`."""
    at = States(*(chosen_states(leaf, positions) for leaf in states))
    return jax.lax.stop_gradient(at) if detach else at
