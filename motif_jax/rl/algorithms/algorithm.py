"""The interface between a training of an agent and its algorithm, which `config.algorithm.name`
chooses.
"""

from __future__ import annotations

import abc
import dataclasses
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from motif_jax.core.compat import Compat
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.rl.algorithms.total_reward import RewardTerms

# update(state, batch, *, axis_name=None) -> (state, metrics of float32 scalars), see `update.make`.
Update = Callable[..., tuple[Any, dict[str, jax.Array]]]


@dataclasses.dataclass(frozen=True)
class UpdatePlan:
    """The values of a training's config that an algorithm reads.

    Attributes:
      algorithm: the section `config.algorithm`; that of an algorithm from outside the package is
          `config.AnyAlgorithm`.
      reward: coefficients that add the task's reward and the intrinsic one.
      train_for_env_steps: length of the run, over which the learning rate falls.
      batch_size: environment steps of an update, of all devices together.
      rollout: environment steps of a trajectory.
      compat: switches of the published code's quirks.
      network: the kind of network, a name of `choices.NETWORKS`.
    """

    algorithm: Any
    reward: RewardTerms
    train_for_env_steps: int
    batch_size: int
    rollout: int
    compat: Compat
    network: str = "game"


class StateFields(NamedTuple):
    """Which fields a training state has besides `params`, `step` and those that only its algorithm
    reads.

    Attributes:
      reward_params: parameters of a reward that is computed in the update, () without one. No
        update changes them, and no checkpoint holds them.
      env_steps: environment steps so far. An update that is skipped because it is not finite
        counts, as it does in `step`.
      memory: played steps. It keeps the batch of a skipped update, and is not checked for finite
        numbers: it is too large to be copied.
      frozen: parameters that no update changes and that no checkpoint holds, () without any: the
        base of low-rank additions.
      reference: parameters of another policy that no update changes and that no checkpoint holds,
        () without any. A run that resumes computes them again by `make_state` and
        `with_training_parts`.
    """

    reward_params: bool = False
    env_steps: bool = False
    memory: bool = False
    frozen: bool = False
    reference: bool = False

    @classmethod
    def named_in(cls, state: Any) -> StateFields:
        """Those among the names of the fields of `state`, a NamedTuple."""
        return cls(*(name in state._fields for name in cls._fields))

    @property
    def constant(self) -> tuple[str, ...]:
        """Names of the fields that no update changes and no checkpoint holds."""
        has_field = {
            "reward_params": self.reward_params,
            "frozen": self.frozen,
            "reference": self.reference,
        }
        return tuple(name for name, is_there in has_field.items() if is_there)

    @property
    def counts(self) -> tuple[str, ...]:
        """Names of the fields that a skipped update changes, too; the memory is not among them."""
        return ("step", "env_steps") if self.env_steps else ("step",)


class Algorithm(abc.ABC):
    """An update algorithm, such as `appo.AppoAlgorithm` and `ppo_update.PpoAlgorithm`.

    Its training state is a NamedTuple with at least these fields:
      params: the network's parameters.
      step: int32 scalar, the number of updates so far.
    It may have those of `StateFields`, and others that only the algorithm reads. Rewards that are
    computed in the update, as a frozen Motif's, need `reward_params`.

    An algorithm of yours needs the three abstract methods, and need not be a subclass.
    `update.make` builds an update around its optimiser steps, with rewards, counters and the
    metrics that all updates have.

    An algorithm of this package is a subclass, and a `section_class` with the keys of
    `config.algorithm` in the `config.py` of its folder, which loads no jax. Each has a line in
    `rl/choices.py` (`ALGORITHMS`, `ALGORITHM_SECTIONS`). Then `--config.algorithm.name=NAME`
    chooses it with any config. The command line sets those of its keys that the config file lists
    (`section_keys`, as configs/train_language_agent.py does for PPO); the others have their
    defaults.
    """

    @abc.abstractmethod
    def check(self, plan: UpdatePlan) -> None:
        """Raises UserError for values of `config.algorithm` that are not allowed."""

    @abc.abstractmethod
    def make_state(self, network: Any, optimizer: Any, key: jax.Array) -> Any:
        """A new state; the same key gives the same."""

    @abc.abstractmethod
    def make_update(
        self, network: Any, optimizer: Any, plan: UpdatePlan, *, reward_fn: Any = None
    ) -> Update:
        """Builds the update, see `Update`."""

    def with_training_parts(self, state: Any, network: Any, plan: UpdatePlan) -> Any:
        """Adds to a new state what only a training needs, such as a replay memory."""
        return state

    def check_spec(self, plan: UpdatePlan, spec: EnvironmentSpec) -> None:  # noqa: B027 (there may be nothing to check)
        """Raises UserError where the algorithm cannot learn in an environment of `spec`."""

    def check_network(self, plan: UpdatePlan, network: Any) -> None:  # noqa: B027 (there may be nothing to check)
        """Raises UserError where the algorithm cannot train `network`."""

    def check_devices(self, plan: UpdatePlan, devices: int) -> None:  # noqa: B027 (there may be nothing to check)
        """Raises UserError where an update does not divide over `devices`; devices that share one
        split network count as one.
        """

    def state_fields(self, state: Any) -> StateFields:
        """Which of the fields that a training treats specially `state` has; by default those that
        have the names.
        """
        return StateFields.named_in(state)

    def epochs(self, plan: UpdatePlan) -> int:
        """Number of times that an update learns from each row of a batch."""
        return plan.algorithm.epochs

    def minibatches(self, plan: UpdatePlan) -> int:
        """Number of parts into which the rollouts of each device must divide."""
        return plan.algorithm.minibatches

    def optimizer_steps(self, plan: UpdatePlan) -> int:
        """Number of optimiser steps of an update."""
        return self.epochs(plan) * self.minibatches(plan)

    def acting_parts(
        self, plan: UpdatePlan, prepare: Callable[[Any], Any]
    ) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """Returns two functions: the first takes from a state the part that actors need, the second
        turns it into acting parameters.

        Args:
          prepare: the network's function from parameters to acting parameters
              (`PolicyNetwork.prepare`).
        """
        return operator.attrgetter("params"), prepare


class OutsideAlgorithm(Algorithm):
    """An algorithm from outside the package that is not a subclass of `Algorithm`; only `METHODS`
    of it are called.
    """

    METHODS = ("check", "make_state", "make_update")

    def __init__(self, algorithm: Any) -> None:
        self._algorithm = algorithm

    def check(self, plan: UpdatePlan) -> None:
        self._algorithm.check(plan)

    def make_state(self, network: Any, optimizer: Any, key: jax.Array) -> Any:
        return self._algorithm.make_state(network, optimizer, key)

    def make_update(
        self, network: Any, optimizer: Any, plan: UpdatePlan, *, reward_fn: Any = None
    ) -> Update:
        return self._algorithm.make_update(network, optimizer, plan, reward_fn=reward_fn)
