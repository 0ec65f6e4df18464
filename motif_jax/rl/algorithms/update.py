"""The common part of the updates of all algorithms: rewards, then the algorithm's optimiser steps,
then counters and metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

from motif_jax.core.training import reductions, schedules
from motif_jax.nets.policy import with_input_statistics
from motif_jax.rl.algorithms import total_reward, trajectory
from motif_jax.rl.algorithms.algorithm import UpdatePlan
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.reward_keys import CAUSED

Array = jax.Array
Metrics = dict[str, Array]
State = TypeVar("State", bound=Any)
RewardFunction = Callable[[Any, Mapping[str, Array]], Array]
# An optimiser's step: (state, gradients) -> (state, metrics).
Apply = Callable[[Any, Any], tuple[Any, Metrics]]
# Metrics whose values over several minibatches are reduced to an extreme; all others are averaged.
EXTREMES = {"policy/ratio_min": jnp.min, "policy/ratio_max": jnp.max, "lag/max": jnp.max}


def initial(network: Any, optimizer: optax.GradientTransformation, key: Array) -> dict[str, Any]:
    """The fields that the states of all updates have; the same key gives the same values.

    Returns:
      `params`; `opt_state`; `step`, int32 scalar, the number of updates and version of `params`;
      `env_steps`, int32 [2], as `schedules.add_steps` counts them; `key`, changed by updates that
      draw. A state also has `reward_params` of a `reward_fn`.
    """
    init_key, key = jax.random.split(key)
    params = network.init(init_key)
    return {
        "params": params,
        "opt_state": optimizer.init(params),
        "step": jnp.zeros((), jnp.int32),
        "env_steps": schedules.no_steps(),
        "key": key,
    }


def joined(metrics: Metrics) -> Metrics:
    """The metrics of an update from those of its minibatches, [N] each."""
    return {name: EXTREMES.get(name, jnp.mean)(values) for name, values in metrics.items()}


def make(
    network: Any,
    optimizer: optax.GradientTransformationExtraArgs,
    plan: UpdatePlan,
    learn: Callable[[State, TrajectoryBatch, Array, Apply, str | None], tuple[State, Metrics]],
    reward_fn: RewardFunction | None = None,
    *,
    positive_reward: bool = False,
) -> Callable[..., tuple[State, Metrics]]:
    """Builds an update around the optimiser steps of an algorithm.

    Args:
      optimizer: from `schedules.make_optimizer` without a number of steps.
      plan: the learning rate falls with the share of its `train_for_env_steps` that earlier batches
        had.
      learn: (state, batch, reward float32 [T, B], apply, axis_name) -> (state, metrics). It takes
        each optimiser step by `apply`. Its metrics replace metrics of the same name that are
        computed here.
      reward_fn: for rewards that the batcher does not compute: a pure function of
        `state.reward_params` and the fields [T, B, ...] of the rows with an action, and of final
        observations where the spec's `last_text` says so; its intrinsic reward replaces that of the
        batch.
      positive_reward: whether negative rewards of the task count as 0.

    Returns:
      update(state, batch, *, axis_name=None) -> (state, metrics of float32 scalars).
    """

    def update(
        state: State, batch: TrajectoryBatch, *, axis_name: str | None = None
    ) -> tuple[State, Metrics]:
        trajectory.check(batch)
        if reward_fn is not None:
            batch = _with_intrinsic_reward(
                batch, reward_fn, state.reward_params, plan.reward.pay, network.spec.last_text
            )
        if positive_reward:
            batch = batch._replace(reward=jnp.maximum(batch.reward, 0.0))
        # Once for all epochs, since no optimiser step changes them.
        rewards = total_reward.compute_rewards(plan.reward, batch, network.spec.count_field)
        recorded = trajectory.recorded(batch)
        share = schedules.share_done(state.env_steps, plan.train_for_env_steps)

        def apply(current: State, gradients: Any) -> tuple[State, Metrics]:
            updates, opt_state = optimizer.update(
                gradients, current.opt_state, current.params, share=share
            )
            params = optax.apply_updates(current.params, updates)
            return current._replace(params=params, opt_state=opt_state), {
                "optimizer/learning_rate": opt_state[-1].rate,
                # Before the optimiser's clip.
                "optimizer/gradient_norm": optax.tree.norm(gradients),
                "optimizer/update_norm": optax.tree.norm(updates),
            }

        learned, metrics = learn(state, batch, rewards.total, apply, axis_name)
        # `state` is still that before the update.
        lag = (state.step - batch.parameter_version).astype(jnp.float32)
        common_metrics = {
            **total_reward.reward_metrics(rewards, recorded, axis_name),
            "lag/mean": reductions.mean(lag, recorded, axis_name),
            "lag/max": reductions.maximum(lag, recorded, axis_name),
            "batch/recorded_share": reductions.mean(
                recorded * 1.0, jnp.ones_like(recorded), axis_name
            ),
        }
        steps_of_batch = reductions.total(recorded.astype(jnp.int32), axis_name)
        state = learned._replace(
            # After the steps, which learned with the statistics that `params` had before.
            params=with_input_statistics(network, learned.params, batch.observation, axis_name),
            step=state.step + 1,
            env_steps=schedules.add_steps(state.env_steps, steps_of_batch),
        )
        return state, {**common_metrics, **metrics}

    return update


def _with_intrinsic_reward(
    batch: TrajectoryBatch, reward_fn: Callable[..., Array], params: Any, pay: str, pays_last: bool
) -> TrajectoryBatch:
    """The batch with the intrinsic reward that `reward_fn` computes of its observations."""
    if pay == CAUSED:
        values = reward_fn(params, batch.observation)
        is_paid = trajectory.leads_on(batch.first, batch.last)
        if not pays_last:
            is_paid &= ~batch.last[1:]
        of_next_row = jnp.where(is_paid, values[1:], 0.0)
        return batch._replace(
            intrinsic_reward=jnp.zeros_like(of_next_row), next_intrinsic_reward=of_next_row
        )
    if not pays_last:
        rows = {name: x[:-1] for name, x in batch.observation.items()}
        return batch._replace(intrinsic_reward=reward_fn(params, rows))
    values = reward_fn(params, batch.observation)
    of_final_row = jnp.where(batch.last[1:], values[1:], 0.0)
    return batch._replace(intrinsic_reward=values[:-1], next_intrinsic_reward=of_final_row)
