"""What a training and an algorithm know of each other."""

from __future__ import annotations

import abc
import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import jax

from motif_jax.core.compat import Compat
from motif_jax.rl.algorithms.total_reward import RewardTerms

# update(state, batch, *, axis_name=None) -> (state, metrics of float32 scalars), see `update.make`.
Update = Callable[..., tuple[Any, dict[str, jax.Array]]]


@dataclasses.dataclass(frozen=True)
class UpdatePlan:
    """What an algorithm reads of a training.

    Attributes:
      algorithm: the values of the algorithm's section.
      reward: how task reward and intrinsic reward become one.
      train_for_env_steps: of the whole run, over which the learning rate falls.
      batch_size: environment steps of an update, of all devices together.
      rollout: environment steps of a trajectory.
      compat: quirks of the published code.
      network: the kind of network.
    """

    algorithm: Any
    reward: RewardTerms
    train_for_env_steps: int
    batch_size: int
    rollout: int
    compat: Compat
    network: str = "game"


class Algorithm(abc.ABC):
    """An update algorithm; `appo.AppoAlgorithm` and `ppo_update.PpoAlgorithm` are two.

    Its state is a NamedTuple with at least `params` of the network; `step`, int32 scalar, the number of updates; and `reward_params`
    of a reward that is computed in the update, () before, which no checkpoint holds. After an update that is skipped, a field
    `memory` of played steps takes its batch all the same.

    One of yours needs only the three abstract methods, and need not be a subclass.
    """

    @abc.abstractmethod
    def check(self, plan: UpdatePlan) -> None:
        """Raises UserError for values of `config.algorithm` that are not allowed."""

    @abc.abstractmethod
    def make_state(self, network: Any, optimizer: Any, key: jax.Array) -> Any:
        """A new state; the same key gives the same."""

    @abc.abstractmethod
    def make_update(self, network: Any, optimizer: Any, plan: UpdatePlan, *, reward_fn: Any = None) -> Update:
        """Builds the update, see `Update`."""

    def completed(self, state: Any, network: Any, plan: UpdatePlan) -> Any:
        """A new state with what only a training needs, such as a replay memory."""
        return state

    def check_devices(self, plan: UpdatePlan, devices: int) -> None:  # noqa: B027 (there may be nothing to check)
        """Raises UserError where an update does not divide over so many devices; a network split over devices counts as one."""

    def minibatches(self, plan: UpdatePlan) -> int:
        """Parts into which the rollouts of each device must divide."""
        return getattr(plan.algorithm, "minibatches", 1)

    def optimizer_steps(self, plan: UpdatePlan) -> int:
        """Optimiser steps of an update."""
        return getattr(plan.algorithm, "epochs", 1) * self.minibatches(plan)

    def acting(
        self, plan: UpdatePlan, prepare: Callable[[Any], Any]
    ) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """Two functions: the part of a state that is published, and that part as the network acts with it.

        Args:
          prepare: makes of parameters what the network acts with.
        """
        return operator.attrgetter("params"), prepare


class OutsideAlgorithm(Algorithm):
    """An algorithm from outside the package that is no subclass of `Algorithm`."""

    METHODS = ("check", "make_state", "make_update")

    def __init__(self, own: Any) -> None:
        self._own = own

    def check(self, plan: UpdatePlan) -> None:
        self._own.check(plan)

    def make_state(self, network: Any, optimizer: Any, key: jax.Array) -> Any:
        return self._own.make_state(network, optimizer, key)

    def make_update(self, network: Any, optimizer: Any, plan: UpdatePlan, *, reward_fn: Any = None) -> Update:
        return self._own.make_update(network, optimizer, plan, reward_fn=reward_fn)
