"""What a training asks of an algorithm: `init` and `update`, pure functions of arrays; and what all
updates do besides their optimiser's steps.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

from motif_jax.core.training import reductions, schedules
from motif_jax.nets.policy import PolicyNetwork, with_input_statistics
from motif_jax.rl.algorithms import total_reward, trajectory
from motif_jax.rl.algorithms.total_reward import Rewards
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.reward_keys import CAUSED, SENTENCE

Array = jax.Array
Metrics = dict[str, Array]
State = TypeVar("State", bound=Any)
# (reward_params, fields [T, B, ...]) -> intrinsic reward float32 [T, B]
RewardFunction = Callable[[Any, Mapping[str, Array]], Array]
# Metrics whose values over several minibatches are reduced to an extreme; all others are averaged.
EXTREMES = {"policy/ratio_min": jnp.min, "policy/ratio_max": jnp.max, "lag/max": jnp.max}
# Fields of a training state that no update changes and no checkpoint holds, see `Algorithm`.
CONSTANT = ("reward_params", "frozen", "reference")
# Fields that an update changes also where it is skipped because it is not finite.
COUNTS = ("step", "env_steps")
# Played steps. An update that is skipped keeps its batch there, and it is not checked for finite
# numbers: it is too large to be copied.
MEMORY = "memory"


def fields_in(state: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `names` that are fields of a training state."""
    return tuple(name for name in names if name in state._fields)


def joined(metrics: Metrics) -> Metrics:
    """The metrics of an update from those of its minibatches, [N] each."""
    return {name: EXTREMES.get(name, jnp.mean)(values) for name, values in metrics.items()}


class Algorithm(abc.ABC):
    """The algorithm of a training, such as `appo.AppoAlgorithm` and `ppo.PpoAlgorithm`.

    Its training state is a NamedTuple with at least these fields:
      params: the network's parameters.
      step: int32 scalar, the number of updates so far.
    A training treats these fields of it specially, where it has them:
      env_steps: environment steps so far.
      memory: see `MEMORY`.
      reward_params: parameters of a reward that is computed in the update, () without one. Rewards
        that are computed in the update, as a frozen Motif's, need it.
      frozen: parameters that are never trained, () without any: the base of low-rank additions.
      reference: parameters of another policy that no update changes, () without any; a run that
        resumes takes those of a new `init`.

    An algorithm of yours is a subclass with `init` and `update`, which `config.algorithm.name`
    names as module:Class. Its section of the config has the keys that the config gives it. One of
    this package also has a `section_class` with the keys of `config.algorithm` in the `config.py`
    of its folder, which loads no jax, and a line in `rl/choices.py`. Then
    `--config.algorithm.name=NAME` chooses it with any config. The command line sets those of its
    keys that the config file lists (`section_keys`, as configs/train_language_agent.py does for
    PPO); the others have their defaults.

    Args:
      config: the resolved config of the training.
      optimizer: from `schedules.make_optimizer` without a number of steps.
      reward_fn: for rewards that the batcher does not compute: a pure function of
        `state.reward_params` and the fields [T, B, ...] of the rows with an action, and of final
        observations where the spec's `last_text` says so; its intrinsic reward replaces that of the
        batch.
    """

    def __init__(
        self,
        config: AgentConfig,
        network: PolicyNetwork,
        optimizer: optax.GradientTransformationExtraArgs,
        reward_fn: RewardFunction | None = None,
    ) -> None:
        self.config = config
        self.network = network
        self.optimizer = optimizer
        self.reward_fn = reward_fn

    @classmethod  # noqa: B027 (there may be nothing to check)
    def check(cls, config: AgentConfig, network: PolicyNetwork) -> None:
        """Raises UserError for values of `config.algorithm` that are not allowed, also with this
        network and its environment.
        """

    @classmethod  # noqa: B027 (there may be nothing to check)
    def check_devices(cls, config: AgentConfig, devices: int) -> None:
        """Raises UserError where an update does not divide over `devices`; devices that share one
        split network count as one.
        """

    @classmethod
    def epochs(cls, config: AgentConfig) -> int:
        """Number of times that an update learns from each row of a batch."""
        return config.algorithm.epochs

    @classmethod
    def minibatches(cls, config: AgentConfig) -> int:
        """Number of parts into which the rollouts of each device must divide."""
        return config.algorithm.minibatches

    @classmethod
    def optimizer_steps(cls, config: AgentConfig) -> int:
        """Number of optimiser steps of an update."""
        return cls.epochs(config) * cls.minibatches(config)

    @abc.abstractmethod
    def init(self, key: Array) -> Any:
        """A new training state; the same key gives the same."""

    @abc.abstractmethod
    def update(
        self, state: Any, batch: TrajectoryBatch, *, axis_name: str | None = None
    ) -> tuple[Any, Metrics]:
        """The state after an update with a batch, or with one device's part of it, and metrics,
        float32 scalars; equal on all devices of `axis_name`.
        """

    def published(self, state: Any) -> Any:
        """The part of a state that actors need."""
        return state.params

    def acting(self, published: Any) -> Any:
        """The acting parameters of what `published` took."""
        return self.network.prepare(published)

    # What the updates of this package share: they begin with `rewards`, take steps by `apply`, and
    # end with `counted`.

    def first_fields(self, key: Array) -> dict[str, Any]:
        """The fields that the states of all updates of this package have; the same key gives the
        same values.

        Returns:
          `params`; `opt_state`; `step`, int32 scalar, the number of updates and version of
          `params`; `env_steps`, int32 [2], as `schedules.add_steps` counts them; `key`, changed by
          updates that draw.
        """
        init_key, key = jax.random.split(key)
        params = self.network.init(init_key)
        return {
            "params": params,
            "opt_state": self.optimizer.init(params),
            "step": jnp.zeros((), jnp.int32),
            "env_steps": schedules.no_steps(),
            "key": key,
        }

    def rewards(self, state: Any, batch: TrajectoryBatch, *, positive: bool = False) -> Rewards:
        """The rewards of a batch, once for all epochs, since no optimiser step changes them.

        Args:
          positive: whether negative rewards of the task count as 0.
        """
        trajectory.check(batch)
        spec = self.network.spec
        if self.reward_fn is not None:
            batch = _with_intrinsic_reward(
                batch,
                self.reward_fn,
                state.reward_params,
                self.config.reward.pay,
                spec.last_text,
            )
        if positive:
            batch = batch._replace(reward=jnp.maximum(batch.reward, 0.0))
        terms = self.config.reward
        # Rewards of sentences are divided by their counts before the learner gets them.
        count_field = None if terms.by == SENTENCE else spec.count_field
        return total_reward.compute_rewards(terms, batch, count_field)

    def share_done(self, state: Any) -> Array:
        """The share of the run's steps that earlier batches had, with which the learning rate
        falls; float32 scalar.
        """
        return schedules.share_done(state.env_steps, self.config.train_for_env_steps)

    def apply(self, state: State, gradients: Any, share: Array) -> tuple[State, Metrics]:
        """One step of the optimiser; `share` is `share_done` of the state before the update."""
        updates, opt_state = self.optimizer.update(
            gradients, state.opt_state, state.params, share=share
        )
        params = optax.apply_updates(state.params, updates)
        return state._replace(params=params, opt_state=opt_state), {
            "optimizer/learning_rate": opt_state[-1].rate,
            # Before the optimiser's clip.
            "optimizer/gradient_norm": optax.tree.norm(gradients),
            "optimizer/update_norm": optax.tree.norm(updates),
        }

    def counted(
        self,
        before: Any,
        learned: State,
        batch: TrajectoryBatch,
        rewards: Rewards,
        metrics: Metrics,
        axis_name: str | None,
    ) -> tuple[State, Metrics]:
        """The end of an update: its counts, the statistics of what the network reads, and the
        metrics that all updates have.

        Args:
          before: the state before the update.
          learned: the state after the optimiser's steps.
          metrics: of these steps; they replace metrics of the same name that are computed here.
        """
        recorded = trajectory.recorded(batch)
        lag = (before.step - batch.parameter_version).astype(jnp.float32)
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
            params=with_input_statistics(
                self.network, learned.params, batch.observation, axis_name
            ),
            step=before.step + 1,
            env_steps=schedules.add_steps(before.env_steps, steps_of_batch),
        )
        return state, {**common_metrics, **metrics}


def _with_intrinsic_reward(
    batch: TrajectoryBatch, reward_fn: RewardFunction, params: Any, pay: str, pays_last: bool
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
