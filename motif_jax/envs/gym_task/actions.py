"""Turns gymnasium's action spaces into the actions of an `EnvironmentSpec`, and reads masks of
them.

Numbered actions are played by their numbers; those of several numbers together, every combination
of which is an action. Boxes of real numbers are played as they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.envs.gym_task import captions

MASK = "environment.action_mask"
MAX_ACTIONS = 4096
# Slots and recordings keep an action in 16 bits.
_MAX_NUMBERED = 32_768


class UnsupportedActionsError(ValueError):
    """An action space that this package's policies cannot play."""


class ContinuousActions:
    """What a gymnasium environment is given for numbers from -1 to 1: each is spread from its lower
    bound to its upper one.

    Attributes:
      count: 0; `size`: `EnvironmentSpec.num_actions` and `action_size`.
      names: ().

    Raises UnsupportedActionsError: the box holds whole numbers, has no bounds, or is empty.
    """

    count = 0
    names: tuple[str, ...] = ()

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        if np.dtype(space.dtype).kind != "f":
            raise UnsupportedActionsError(
                f"{space} has whole numbers; a wrapper that makes them a MultiDiscrete makes it playable"
            )
        if not space.is_bounded("both"):
            raise UnsupportedActionsError(
                f"{space} has no bounds; a wrapper that bounds it makes it playable"
            )
        self._low = space.low.astype(np.float64)
        self._high = space.high.astype(np.float64)
        self._dtype = space.dtype
        self.size = self._low.size
        if self.size == 0:
            raise UnsupportedActionsError(f"{space} has no numbers")

    def value(self, action: Sequence[float]) -> np.ndarray:
        """What the environment is given for `action`."""
        share = (np.asarray(action, np.float64).reshape(self._low.shape) + 1) / 2
        # Two products, since the distance of the bounds may overflow; their sum may be rounded
        # beyond a bound.
        numbers = np.clip((1 - share) * self._low + share * self._high, self._low, self._high)
        return numbers.astype(self._dtype)


class NumberedActions:
    """What a gymnasium environment is given for each of the actions 0 .. `count` - 1 of a
    `Discrete` space.

    Attributes:
      count, size: `EnvironmentSpec.num_actions` and `action_size`, which is 0.
      names: (), since its numbers say nothing.

    Raises UnsupportedActionsError: the space has too many actions.
    """

    size = 0
    names: tuple[str, ...] = ()

    def __init__(self, space: gymnasium.spaces.Discrete) -> None:
        self.count = int(space.n)
        if self.count > _MAX_NUMBERED:
            raise UnsupportedActionsError(
                f"{space} has {self.count:,} actions, more than {_MAX_NUMBERED:,}"
            )
        self._first = int(space.start)

    def value(self, action: int) -> int:
        """What the environment is given for `action`."""
        return action + self._first


class CombinedActions:
    """What a gymnasium environment is given for each of the actions 0 .. `count` - 1 of a
    `MultiDiscrete` or `MultiBinary` space, the combinations of its numbers.

    Attributes:
      count, size: `EnvironmentSpec.num_actions` and `action_size`, which is 0.
      names: the numbers of each action, joined by commas.

    Raises UnsupportedActionsError: the space has more than `MAX_ACTIONS` combinations.
    """

    size = 0

    def __init__(
        self, space: gymnasium.spaces.MultiDiscrete | gymnasium.spaces.MultiBinary
    ) -> None:
        if isinstance(space, gymnasium.spaces.MultiBinary):
            counts = np.full(space.shape, 2)
            starts = np.zeros(space.shape, np.int64)
        else:
            counts = space.nvec
            starts = space.start
        self.count = math.prod(counts.ravel().tolist())
        # Counted before they are made: five numbers of 100 values each have ten billion
        # combinations.
        if self.count > MAX_ACTIONS:
            raise UnsupportedActionsError(
                f"{space} gives {self.count:,} actions, more than {MAX_ACTIONS:,}"
            )
        ranges = [range(count) for count in counts.ravel().tolist()]
        offsets = np.array(list(itertools.product(*ranges)), np.int64)
        self._values = (starts + offsets.reshape(-1, *counts.shape)).astype(space.dtype)
        self.names = tuple(
            ", ".join(str(number) for number in numbers.ravel()) for numbers in self._values
        )

    def value(self, action: int) -> np.ndarray:
        """What the environment is given for `action`: a copy, which it may change."""
        return self._values[action].copy()


Actions = ContinuousActions | NumberedActions | CombinedActions


def make_actions(space: gymnasium.Space) -> Actions:
    """The actions of `space`.

    Raises UnsupportedActionsError: the space is of another kind, or as the three classes raise it.
    """
    if isinstance(space, gymnasium.spaces.Discrete):
        return NumberedActions(space)
    if isinstance(space, gymnasium.spaces.MultiDiscrete | gymnasium.spaces.MultiBinary):
        return CombinedActions(space)
    if isinstance(space, gymnasium.spaces.Box):
        return ContinuousActions(space)
    raise UnsupportedActionsError(
        f"a {type(space).__name__} cannot be played; a wrapper that makes it a Discrete, a MultiDiscrete or a Box makes it playable"
    )


class ActionMask:
    """Reads which actions a step allows from 'info:KEY' or 'obs:KEY' (dots for nested keys).

    Raises UserError: `source` has another form.
    """

    def __init__(self, source: str, count: int) -> None:
        is_key = source.startswith((captions.INFO, captions.OBSERVATION))
        checks.require(is_key, MASK, source, "info:KEY or obs:KEY")
        self._source = source
        self._read = captions.make(source)
        self._count = count

    def read(self, step: captions.CaptionedStep) -> np.ndarray:
        """1 for each action that `step` allows, 0 for the others: uint8 [count].

        Raises UserError: the mask is missing, has another size or other numbers, or allows nothing
        although the episode goes on.
        """
        values = self._read(step)
        if values is None:
            raise self._refusal("a step has none")
        mask = np.asarray(values)
        if mask.shape != (self._count,):
            raise self._refusal(f"its shape is {list(mask.shape)}, not [{self._count}]")
        if not ((mask == 0) | (mask == 1)).all():
            raise self._refusal("it has numbers besides 0 and 1")
        # Nobody acts after the end, where some environments allow nothing.
        has_ended = step.terminated or step.truncated
        if not has_ended and not mask.any():
            raise self._refusal("it allows no action, although the episode goes on")
        return mask.astype(np.uint8)

    def _refusal(self, fault: str) -> UserError:
        return UserError(
            f"config.{MASK}={self._source}: must name a mask that every step has, of one number for each action; {fault}"
        )


def action_names(environment: gymnasium.Env, space_actions: Actions) -> tuple[str, ...]:
    """Names of the actions in minigrid, Atari, or a wrapper with names of this kind; else those of
    `space_actions`, which may be ().
    """
    meanings = _attribute(environment, "get_action_meanings", None)
    if callable(meanings):
        names = list(meanings())
    else:
        # minigrid's enumeration; in other environments `actions` may be anything.
        actions = _attribute(environment, "actions", ())
        listed = list(actions) if isinstance(actions, Iterable) else []
        names = [action.name for action in listed if hasattr(action, "name")]
    if len(names) == space_actions.count:
        return tuple(str(name).lower() for name in names)
    return space_actions.names


def _attribute(environment: gymnasium.Env, name: str, default: Any) -> Any:
    """An attribute of the outermost wrapper that has it, or of the environment."""
    return environment.get_wrapper_attr(name) if environment.has_wrapper_attr(name) else default
