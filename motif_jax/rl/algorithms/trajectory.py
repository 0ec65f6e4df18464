"""A batch of rollouts, time first, as an update of the learner reads it."""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
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
