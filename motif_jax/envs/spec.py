"""What an environment shows and takes: the contract between environments and everything that plays them.

Nothing outside this package names a field of a game: trajectory slots, batcher, inference and learner are built
from an `EnvironmentSpec`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

RUNNING = 0
TERMINATED = 1
TRUNCATED = 2


class EngineError(RuntimeError):
    """The engine of an environment does not answer as it should; the environment has to be made anew."""


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """Shape (of one step, without time and batch axes) and numpy dtype name of one observation field."""

    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class EnvironmentSpec:
    """Everything a consumer needs to know of an environment before it is started.

    Attributes:
        observation: field name -> shape and dtype of one step.
        num_actions: actions are integers 0 .. num_actions - 1.
        text_field: the field whose bytes a reward of the text alone reads; None where there is no text.
        count_field: the field that says how often this text was seen in this episode, this step included.
        episode_fields: names of the numbers in `Environment.episode_info()`, besides `return` and `length`.
    """

    observation: Mapping[str, ArraySpec]
    num_actions: int
    text_field: str | None = None
    count_field: str | None = None
    episode_fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (self.text_field, self.count_field):
            if name is not None and name not in self.observation:
                raise ValueError(f"{name!r} is not among the observation fields {sorted(self.observation)}")


class Environment(Protocol):
    """One game played step by step. After an end other than `RUNNING` the caller resets."""

    spec: EnvironmentSpec

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        """Starts an episode that `seed` determines fully and writes its first observation into `out`.

        Raises EngineError, as `step` does, when the engine is broken.
        """

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        """Plays `action`; returns (reward, end), end one of `RUNNING`, `TERMINATED`, `TRUNCATED`.

        Every field of `out` (views of one row of a larger array are fine) is written completely.
        """

    def episode_info(self) -> dict[str, float]:
        """Numbers of the episode that runs or has just ended: return, length and `spec.episode_fields`."""

    def close(self) -> None:
        """Frees the engine. The object cannot be used afterwards."""


class EnvironmentGroup(Protocol):
    """Environments that are played in step, a column each; what costs time is done for all of them at once."""

    spec: EnvironmentSpec
    count: int

    def start(self, column: int, seed: int) -> None:
        """Starts in `column` the episode that `seed` determines."""

    def step(self, actions: Sequence[int], columns: Sequence[int]) -> tuple[list[float], list[int]]:
        """Plays `actions[column]` in each of `columns`, ascending; the others rest.

        Returns rewards and ends (`RUNNING`, `TERMINATED`, `TRUNCATED`) of all columns; 0 where a column rests. A
        column that has ended is to be started again before it is stepped again.
        """

    def observe(self, out: Mapping[str, np.ndarray]) -> None:
        """Writes the newest observation of every column into the fields of `out`, each [count, *shape]."""

    def episode_info(self, column: int) -> dict[str, float]:
        """As `Environment.episode_info`, for the episode in `column`."""

    def close(self) -> None:
        """Frees the engines."""


class Row(dict[str, np.ndarray]):
    """The arrays of one row, field -> view, for a row that is written again and again.

    `handles` is for the environment that writes it: what it found out about the arrays once. They must therefore
    stay the same, and one environment alone writes a row.
    """

    __slots__ = ("handles",)

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__(arrays)
        self.handles: Any = None

    def __setitem__(self, name: str, array: np.ndarray) -> None:
        raise TypeError("the arrays of a row stay the same; write into them")


def empty_observation(spec: EnvironmentSpec, leading: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    """Zeroed arrays of the fields of `spec`, each [*leading, *shape]; without leading axes a `Row`."""
    arrays = {
        name: np.zeros((*leading, *field.shape), field.dtype) for name, field in spec.observation.items()
    }
    return arrays if leading else Row(arrays)


def row(arrays: Mapping[str, np.ndarray], *index: int) -> Row:
    """Writable views of one row of `arrays`, e.g. (time, env), also of fields that are numbers."""
    key: tuple = (*index, ...)
    return Row({name: array[key] for name, array in arrays.items()})
