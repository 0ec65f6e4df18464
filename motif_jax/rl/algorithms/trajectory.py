"""A batch of rollouts, time first, as an update of the learner reads it."""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array

# A jax array; on the host a numpy array; in BATCH_AXES a number.
Field = Any


class TrajectoryBatch(NamedTuple):
    """B rollouts of T consecutive rows, and one more row whose value bootstraps.

    A row is an observation with the action taken on it. The final observation of an episode has a
    row of its own (`last`): only its value is used. The row after it is the first of the next
    episode (`first`).
    """

    observation: Field  # raw fields of the environment's specification, each [T+1, B, ...]
    first: Field  # bool [T+1, B], the row holds the first observation of an episode
    last: Field  # bool [T+1, B], the row holds the final observation of an episode
    action: Field  # int32 [T, B], or n real numbers float32 [T, B, n]
    behaviour_log_prob: Field  # float32 [T, B], of `action` under the policy that chose it, in nats
    # float32 [T, B], V of this policy's network (with PopArt in units of reward)
    behaviour_value: Field
    # int32 [T, B], number of updates in the acting parameters; -1 is padding
    parameter_version: Field
    reward: Field  # float32 [T, B], task reward of the action, before scale and clip
    # float32 [T, B], normalised, thresholded, before count discount and coefficient
    intrinsic_reward: Field
    terminated: Field  # bool [T, B], the action ended the episode by a rule of the task
    truncated: Field  # bool [T, B], the action reached the episode's step limit
    # pytree of [B, ...], the recurrent state before row 0 and before a reset by first[0]
    initial_state: Any
    # float32 [T, B], intrinsic reward of the observation to which the action led: with
    # reward.pay=caused of each, else of an episode's final one and 0 elsewhere; None: of none
    next_intrinsic_reward: Field = None


# The axis of each field that counts rollouts; a pytree prefix of a batch.
BATCH_AXES = TrajectoryBatch(**{**dict.fromkeys(TrajectoryBatch._fields, 1), "initial_state": 0})


def done(batch: TrajectoryBatch) -> Array:
    """Whether the return of row t ends with its action: bool [T, B].

    True at a terminated action. After a truncated action the value continues in the `last` row that
    follows; without such a row (the published handling of step limits) it ends, too.
    """
    return batch.terminated | (batch.truncated & ~batch.last[1:])


def recorded(batch: TrajectoryBatch) -> Array:
    """Rows that hold an action of an agent, neither an episode's final row nor padding: bool
    [T, B].
    """
    return ~batch.last[:-1] & (batch.parameter_version >= 0)


def leads_on(first: Field, last: Field) -> Field:
    """Whether the action of row t led to the observation of row t + 1: bool [T, B] for `first` and
    `last` of a batch. An episode's final row has no action, and the first observation of the next
    episode follows from none.
    """
    return ~last[:-1] & ~first[1:]


def check(batch: TrajectoryBatch) -> None:
    """Raises AssertionError where a field does not have the shape or dtype that `TrajectoryBatch`
    names.
    """
    length, rollouts = batch.action.shape[:2]
    numbers = [
        batch.behaviour_log_prob,
        batch.behaviour_value,
        batch.reward,
        batch.intrinsic_reward,
    ]
    if batch.next_intrinsic_reward is not None:
        numbers.append(batch.next_intrinsic_reward)
    flags = [batch.terminated, batch.truncated]
    chex.assert_shape([batch.parameter_version, *numbers, *flags], (length, rollouts))
    chex.assert_shape([batch.first, batch.last], (length + 1, rollouts))
    chex.assert_tree_shape_prefix(batch.observation, (length + 1, rollouts))
    chex.assert_tree_shape_prefix(batch.initial_state, (rollouts,))
    chex.assert_type([batch.first, batch.last, *flags], bool)
    is_numbered = batch.action.ndim == 2
    chex.assert_type(batch.action, jnp.int32 if is_numbered else jnp.float32)
    chex.assert_type(batch.parameter_version, jnp.int32)
    chex.assert_type(numbers, jnp.float32)


def minibatch_order(
    key: Array, epochs: int, minibatches: int, rollouts: int, axis_name: str | None
) -> Array:
    """Draws the minibatches of every epoch, in which every rollout is used once.

    The rollouts of the GLOBAL batch are numbered through all devices and cut into blocks of as many
    rollouts as there are minibatches. Each block deals one rollout, at random, to each minibatch.
    So no rollout leaves its device, and a minibatch has equally many rollouts of each device. It is
    the same on any number of devices whose shares are whole blocks.

    Args:
      key: random key, the same on all devices.
      rollouts: number of this device's rollouts, a multiple of the minibatches.
      axis_name: mapped axis over which the batch is split, in order; None where it is not.

    Returns:
      int32 [epochs * minibatches, rollouts / minibatches], numbers of this device's rollouts.
    """
    blocks = rollouts // minibatches
    local_block = jnp.arange(blocks)
    global_block = local_block
    if axis_name is not None:
        global_block = local_block + jax.lax.axis_index(axis_name) * blocks

    def epoch(key: Array) -> Array:
        # A block's draw depends on its global number alone, not on the number of devices.
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, global_block)
        position_in_block = jax.vmap(lambda k: jax.random.permutation(k, minibatches))(keys)
        # [minibatches, blocks]: which rollout of each block a minibatch gets.
        return (local_block[:, None] * minibatches + position_in_block).T

    return jax.vmap(epoch)(jax.random.split(key, epochs)).reshape(-1, blocks)


def take_rollouts(
    batch: TrajectoryBatch, reward: Array, chosen: Array
) -> tuple[TrajectoryBatch, Array]:
    """The rollouts with numbers `chosen`, int32 [N], of a batch and of its rewards [T, B]."""
    # Rollouts are axis 1, and axis 0 of the recurrent states.
    axes = jax.tree.broadcast(BATCH_AXES, batch)
    minibatch = jax.tree.map(lambda x, axis: jnp.take(x, chosen, axis=axis), batch, axes)
    return minibatch, jnp.take(reward, chosen, axis=1)
