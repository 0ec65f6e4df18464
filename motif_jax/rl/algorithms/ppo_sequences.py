"""The items of PPO's minibatches: steps, or sequences from a recurrent state of play."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.core.training import reductions
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl.algorithms import ppo, trajectory
from motif_jax.rl.algorithms.config import Ppo
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch


class Sequences(NamedTuple):
    """S sequences of R steps; R is 1 for single steps."""

    observation: Mapping[str, jax.Array]  # fields [S, R, ...]
    first: jax.Array  # bool [S, R], the step begins an episode
    states: Any  # tree of [S, ...], the network's states before each sequence
    # [S, R]; [S, R, peers] where each value is compared with those of other rows, too
    samples: ppo.Samples


def replay(
    network: PolicyNetwork, params: Any, batch: TrajectoryBatch, length: int
) -> tuple[jax.Array, Any]:
    """Values [B] of the row after the rollouts, and the states [B T / length, ...] before sequences
    of `length` rows.
    """
    rows = {name: batch.observation[name] for name in network.fields}
    final_row = {name: x[-1:] for name, x in rows.items()}
    state = batch.initial_state
    steps, rollouts = batch.behaviour_value.shape
    # Without a memory no states are replayed.
    if not any(leaf.size for leaf in jax.tree.leaves(state)):
        _, bootstrap, _ = network.apply(params, final_row, state, batch.first[-1:])
        return bootstrap[0], network.initial_state(steps * rollouts // length)
    # [T / length, length, B, ...]: parts in the order of time.
    parts = jax.tree.map(
        lambda x: x[:-1].reshape(steps // length, length, *x.shape[1:]), (rows, batch.first)
    )

    def play(state: Any, part: tuple[Mapping[str, jax.Array], jax.Array]) -> tuple[Any, Any]:
        _, _, next_state = network.apply(params, part[0], state, part[1])
        # The state before the part: gradients of its sequences end there.
        return next_state, state

    state, states = jax.lax.scan(play, state, parts)
    _, bootstrap, _ = network.apply(params, final_row, state, batch.first[-1:])
    return bootstrap[0], jax.tree.map(flat, states)


def samples(
    settings: Ppo,
    batch: TrajectoryBatch,
    bootstrap: jax.Array,
    reward: jax.Array,
    axis_name: str | None,
) -> tuple[ppo.Samples, dict[str, jax.Array]]:
    """The batch's steps with their targets, [B T] each, and metrics of the advantages; `bootstrap`
    [B], `reward` [T, B].
    """
    discount = settings.gamma * (1.0 - trajectory.done(batch))
    value = batch.behaviour_value
    targets = ppo.targets(value, bootstrap, reward, discount, batch.last[:-1], settings.gae_lambda)
    valid = trajectory.recorded(batch)
    advantage = targets.advantage
    # Metrics, of advantages before they are normalised.
    mean, std = reductions.mean_and_std(advantage, valid, axis_name)
    if settings.normalise_advantage:
        advantage = ppo.normalised(advantage, valid, axis_name)
    samples = ppo.Samples(
        action=flat(batch.action),
        behaviour_log_prob=flat(batch.behaviour_log_prob),
        behaviour_value=flat(value),
        advantage=flat(advantage),
        target=flat(targets.value),
        valid=flat(valid),
    )
    return samples, {"advantage/mean": mean, "advantage/std": std}


def sequences(
    network: PolicyNetwork, batch: TrajectoryBatch, samples: ppo.Samples, states: Any, length: int
) -> Sequences:
    """Cuts the batch's steps into sequences of `length`; `states` [B T / length, ...] are those
    before them.
    """
    observation = {name: flat(batch.observation[name][:-1]) for name in network.fields}
    rows = Sequences(observation, flat(batch.first[:-1]), (), samples)
    # `flat` puts a rollout's steps behind each other: each `length` of them are a sequence.
    return jax.tree.map(lambda x: x.reshape(-1, length, *x.shape[1:]), rows)._replace(states=states)


def with_peers(minibatch: Sequences, broadcast_rows: int) -> Sequences:
    """The minibatch with the values and targets of `broadcast_rows` samples, or all, at each step,
    for `compat.glam_value_broadcast`.
    """
    size = min(broadcast_rows, minibatch.samples.valid.size)

    def peers(x: jax.Array) -> jax.Array:
        return ppo.with_rows_of_block(x.reshape(-1), size).reshape(*x.shape, size)

    samples = minibatch.samples._replace(
        behaviour_value=peers(minibatch.samples.behaviour_value),
        target=peers(minibatch.samples.target),
    )
    return minibatch._replace(samples=samples)


def flat(x: jax.Array) -> jax.Array:
    """[T, B, ...] to [B T, ...], rollout by rollout."""
    return jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])
