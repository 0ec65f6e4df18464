"""Turns gymnasium's action spaces into the actions of an `EnvironmentSpec`, and reads masks of
them.

Numbered actions: several numbers are played together, every combination is an action. Continuous
numbers may be played at a few values each (Tang and Agrawal 2020, "Discretizing Continuous Action
Space for On-Policy Optimization"; Seyde et al. 2021, "Is Bang-Bang Control All You Need?"), or,
where a space has no others, as they are.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.envs.gym_task import captions

BINS = "environment.action_bins"
MASK = "environment.action_mask"
MAX_ACTIONS = 4096
# Recordings and running episodes keep an action in 16 bits.
_MAX_NUMBERED = 32_768
_LEAST_BINS = 2


class UnsupportedActionsError(ValueError):
    """An action space that this package's policies cannot play."""


class ContinuousActions:
    """What a gymnasium environment is given for numbers from -1 to 1: each is spread from its lower
    bound to its upper one.

    Attributes:
      count: 0; `size`: `EnvironmentSpec.num_actions` and `action_size`.
      names: ().

    Raises UnsupportedActionsError: a number has no bounds, or there is none.
    """

    count = 0
    names: tuple[str, ...] = ()

    def __init__(self, space: gymnasium.Space) -> None:
        boxes = [part for part in _parts(space) if isinstance(part, gymnasium.spaces.Box)]
        for box in boxes:
            _require_bounds(box)
        self._space = space
        self._low = np.concatenate([box.low.ravel().astype(np.float64) for box in boxes])
        self._high = np.concatenate([box.high.ravel().astype(np.float64) for box in boxes])
        self.size = len(self._low)
        if self.size == 0:
            raise UnsupportedActionsError(f"{space} has no numbers")

    def value(self, action: Sequence[float]) -> Any:
        """What the environment is given for `action`."""
        share = (np.asarray(action, np.float64) + 1) / 2
        # Two products, since the distance of the bounds may overflow; their sum may be rounded
        # beyond a bound.
        numbers = np.clip((1 - share) * self._low + share * self._high, self._low, self._high)
        return _joined(self._space, iter(numbers.tolist()))


def make_actions(space: gymnasium.Space, bins: int = 0) -> ContinuousActions | ActionTable:
    """The actions of `space`: continuous where it has nothing but continuous numbers and `bins` is
    0.

    Raises UnsupportedActionsError, UserError: as `ContinuousActions` and `ActionTable`.
    """
    parts = _parts(space)
    is_continuous = bool(parts) and all(_is_real(part) for part in parts)
    return ContinuousActions(space) if is_continuous and bins == 0 else ActionTable(space, bins)


def _is_real(space: gymnasium.Space) -> bool:
    return isinstance(space, gymnasium.spaces.Box) and np.dtype(space.dtype).kind == "f"


class ActionTable:
    """What a gymnasium environment is given for each of the actions 0 .. `count` - 1.

    Args:
      space: the environment's action space.
      bins: how many values are played of each continuous number, evenly from its lower bound to its
          upper one; 0: the space has none.

    Attributes:
      count, size: `EnvironmentSpec.num_actions` and `action_size`, which is 0.
      names: the numbers of each action, joined by commas; () for a `Discrete` space, whose numbers
          say nothing.

    Raises:
      UnsupportedActionsError: the space is of another kind, has no bounds, or gives more than
          `MAX_ACTIONS` actions.
      UserError: `bins` does not fit the space.
    """

    size = 0

    def __init__(self, space: gymnasium.Space, bins: int = 0) -> None:
        is_continuous = any(isinstance(part, gymnasium.spaces.Box) for part in _parts(space))
        if not is_continuous:
            checks.require(bins == 0, BINS, bins, f"left at 0: {space} has no continuous numbers")
        self.names: tuple[str, ...] = ()
        self._first = 0
        self._values: list[Any] | None = None
        # The environment's own numbers are played, without a table.
        if isinstance(space, gymnasium.spaces.Discrete):
            self.count = int(space.n)
            if self.count > _MAX_NUMBERED:
                raise UnsupportedActionsError(
                    f"{space} has {self.count:,} actions, more than {_MAX_NUMBERED:,}"
                )
            self._first = int(space.start)
            return

        factors = _factors(space, bins)
        self.count = math.prod(len(values) for values in factors)
        # Counted before they are made: five numbers of 100 values each have ten billion
        # combinations.
        if self.count > MAX_ACTIONS:
            remedy = "; use fewer action_bins" if bins > _LEAST_BINS else ""
            raise UnsupportedActionsError(
                f"{space} gives {self.count:,} actions, more than {MAX_ACTIONS:,}{remedy}"
            )
        combinations = list(itertools.product(*factors))
        self.names = tuple(
            ", ".join(f"{number:.3g}" for number in numbers) for numbers in combinations
        )
        self._values = [_joined(space, iter(numbers)) for numbers in combinations]

    def value(self, action: int) -> Any:
        """What the environment is given for `action`: a copy, which it may change."""
        if self._values is None:
            return action + self._first
        return copy.deepcopy(self._values[action])


def _parts(space: gymnasium.Space) -> list[gymnasium.Space]:
    """The spaces without subspaces of which `space` is made, in its order."""
    if isinstance(space, gymnasium.spaces.Dict):
        return [part for child in space.spaces.values() for part in _parts(child)]
    if isinstance(space, gymnasium.spaces.Tuple):
        return [part for child in space.spaces for part in _parts(child)]
    return [space]


def _factors(space: gymnasium.Space, bins: int) -> list[list[float]]:
    """The values of each number of an action, in the order of `_joined`."""
    factors: list[list[float]] = []
    for part in _parts(space):
        if isinstance(part, gymnasium.spaces.Discrete):
            factors.append([int(part.start) + offset for offset in range(int(part.n))])
        elif isinstance(part, gymnasium.spaces.MultiDiscrete):
            for start, count in zip(part.start.flat, part.nvec.flat, strict=True):
                factors.append([int(start) + offset for offset in range(int(count))])
        elif isinstance(part, gymnasium.spaces.MultiBinary):
            factors += [[0, 1]] * int(np.prod(part.shape))
        elif isinstance(part, gymnasium.spaces.Box):
            factors += _binned(part, bins)
        else:
            raise UnsupportedActionsError(f"a {type(part).__name__} cannot be played")
    return factors


def _binned(space: gymnasium.spaces.Box, bins: int) -> list[list[float]]:
    """`bins` values of each number of `space`, evenly from its lower bound to its upper one; fewer
    where it has no more.
    """
    _require_bounds(space)
    kind = "continuous" if _is_real(space) else "whole"
    allowed = f"at least {_LEAST_BINS}, for {space} has {kind} numbers: 5 plays five values of each"
    checks.require(bins >= _LEAST_BINS, BINS, bins, allowed)
    factors = []
    for low, high in zip(space.low.flat, space.high.flat, strict=True):
        values = np.linspace(float(low), float(high), bins)
        if not _is_real(space):
            values = np.round(values)
        # Of few whole numbers, or of bounds that are the same, some values would be repeated.
        factors.append(np.unique(values.astype(space.dtype)).tolist())
    return factors


def _require_bounds(space: gymnasium.spaces.Box) -> None:
    if not space.is_bounded("both"):
        raise UnsupportedActionsError(
            f"{space} has no bounds; a wrapper that bounds it makes it playable"
        )


def _joined(space: gymnasium.Space, numbers: Iterator[float]) -> Any:
    """The action of `space` with the next of `numbers`, which are in the order of `_factors`."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _joined(part, numbers) for key, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_joined(part, numbers) for part in space.spaces)
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(next(numbers))
    assert space.shape is not None, "Box, MultiDiscrete and MultiBinary have a shape"
    size = math.prod(space.shape)
    return np.array(list(itertools.islice(numbers, size)), space.dtype).reshape(space.shape)


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


def action_names(
    environment: gymnasium.Env, table: ContinuousActions | ActionTable
) -> tuple[str, ...]:
    """Names of the actions in minigrid, Atari, or a wrapper with names of this kind; else the
    table's, which may be ().
    """
    meanings = _attribute(environment, "get_action_meanings", None)
    if callable(meanings):
        names = list(meanings())
    else:
        # minigrid's enumeration; in other environments `actions` may be anything.
        actions = _attribute(environment, "actions", ())
        listed = list(actions) if isinstance(actions, Iterable) else []
        names = [action.name for action in listed if hasattr(action, "name")]
    if len(names) == table.count:
        return tuple(str(name).lower() for name in names)
    return table.names


def _attribute(environment: gymnasium.Env, name: str, default: Any) -> Any:
    """An attribute of the outermost wrapper that has it, or of the environment."""
    return environment.get_wrapper_attr(name) if environment.has_wrapper_attr(name) else default
