"""Stand-ins for the parts that benchmarks measure: each has the methods that a benchmark calls, and
notes the calls.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from motif_jax.core.devices.meters import Reading
from motif_jax.rl.actors.rollouts import ActorsConfig, Ready
from motif_jax.rl.batcher import ActorSource, Batch

# Metrics of the learner, of which the first and the last are of a mean, a maximum and a minimum.
LEARNER_METRICS = ("loss/total", "lag/max", "ratio_min")


class MemoryInfo(NamedTuple):
    pss: int


class GrowingProcess:
    """A `psutil.Process` of 3 MB, which grows at every look, and with itself as a child."""

    def __init__(self) -> None:
        self._sizes = itertools.count(3_000_000, 300_000)

    def memory_full_info(self) -> MemoryInfo:
        return MemoryInfo(next(self._sizes))

    def children(self, recursive: bool) -> list[Self]:
        return [self] if recursive else []


class ProcessTable:
    """The module `psutil` of a machine with one process."""

    def __init__(self, process: GrowingProcess) -> None:
        self._process = process

    def Process(self, pid: int | None = None) -> GrowingProcess:
        return self._process


@dataclasses.dataclass(frozen=True)
class Training:
    """The resolved config of a training, by what it was made of."""

    options: Mapping[str, Any]
    seed: int
    variant: str
    serial: bool = True


class State(NamedTuple):
    """The learner's training state as far as an update's end is waited for."""

    step: int


class StandInSystem:
    """A `System` that is its own learner, meters and actors.

    Attributes:
      calls: steps of the batches that were learned from, rows of calls of inference, 'finished' and
          'closed', in order.
    """

    inference_threads = 2
    state = State(step=0)

    def __init__(self, config: Training) -> None:
        self.config = config
        self.calls: list[Any] = []
        self.learner = self
        self.meters = self
        self.sources = [ActorSource(self, None)]  # type: ignore[arg-type]
        self._calls_at_last_read = 0

    def close(self) -> None:
        self.calls.append("closed")

    # As a learner.

    def step(self, batch: Batch) -> None:
        self.calls.append(batch.num_steps)

    def finish_update(self) -> None:
        self.calls.append("finished")

    def metrics(self) -> dict[str, float]:
        """Metrics that grow with every call."""
        return dict.fromkeys(LEARNER_METRICS, len(self.calls))

    # As meters.

    def read(self) -> Reading:
        """How many calls there were since the last reading, in one second of which inference
        launched for a quarter.
        """
        calls = len(self.calls) - self._calls_at_last_read
        self._calls_at_last_read = len(self.calls)
        return Reading({"calls": calls, "inference/launch": 0.25}, {}, {}, 1.0)

    # As actors.

    def episodes(self) -> list[dict[str, Any]]:
        """An episode of each of sixty environments, whose returns grow with every call."""
        count = len(self.calls)
        episode = {"episode": count, "return": count / 50, "success": 0.75, "length": 4}
        return [{"env": env, **episode} for env in range(60)]


class StandInStream(contextlib.AbstractContextManager["StandInStream"]):
    """A `BatchStream`: again and again nothing, and then batches of 60, 61 and 62 steps of three
    bytes each.
    """

    def __init__(self, system: StandInSystem) -> None:
        self._system = system
        batches = [Batch(None, steps, [], num_bytes=3 * steps) for steps in (60, 61, 62)]  # type: ignore[arg-type]
        self._results = itertools.cycle([None, *batches])

    def __exit__(self, *error: object) -> None:
        self._system.close()

    def get(self) -> Batch | None:
        return next(self._results)


def inference_metrics(reading: Reading, threads: int) -> dict[str, float]:
    """Stands for `system_metrics`."""
    calls = reading.sums["calls"]
    return {"inference/rows_per_call": 10.4 * calls, "device_max": 2 / calls, "threads": threads}


@dataclasses.dataclass
class Slots:
    action: np.ndarray


class StandInPool:
    """An `ActorPool` of four groups, which play one after the other, two at a time.

    `calls` are 'started', 'closed', and the groups of each `act`.
    """

    def __init__(self, config: ActorsConfig, calls: list[Any]) -> None:
        self.calls = calls
        self.slots = Slots(np.full((8, 4, config.envs_per_group), -1))
        self._waiting: list[Ready] = []

    def pids(self) -> list[int]:
        return [5, 6]

    def __enter__(self) -> None:
        self._waiting = [Ready(group, group, group % 3) for group in range(4)]

    def __exit__(self, *error: object) -> None:
        self.calls.append("closed")

    def start(self) -> None:
        self.calls.append("started")

    def act(self, ready: Sequence[Ready]) -> None:
        self.calls.append([entry.group for entry in ready])
        self._waiting += ready

    def ready(self, seconds: float) -> list[Ready]:
        ready = self._waiting[:2]
        self._waiting = self._waiting[2:]
        return ready


class StandInBareEngine:
    """A `actors.Bare` whose turns are noted in `calls` as (games, start, stop)."""

    def __init__(self, games: int, calls: list[Any]) -> None:
        self._games = games
        self._calls = calls

    def play(self, start: int, stop: int) -> None:
        self._calls.append((self._games, start, stop))

    def close(self) -> None:
        self._calls.append("closed")


class StandInAnnotator:
    """A `VllmAnnotator` and its engine, whose cache alone is emptied: a 'reset' in `calls`."""

    def __init__(self, calls: list[Any]) -> None:
        self.identity: dict[str, Any] = {}
        self.engine = self
        self._calls = calls

    def reset_prefix_cache(self) -> None:
        self._calls.append("reset")


class StandInSession(contextlib.AbstractContextManager["StandInSession"]):
    """An `AnnotationSession` that asks nothing."""

    def __init__(self, annotator: StandInAnnotator, store: Any) -> None:
        self.annotator = annotator

    def __exit__(self, *error: object) -> None: ...

    def start(self) -> None: ...
