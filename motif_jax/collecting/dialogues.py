"""A collection of dialogues: parts that worker processes draw, each from the seed and its number alone, then one file."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.actors.worker_process import MAX_DEATHS, run_jobs
from motif_jax.datasets.dialogues import parquet
from motif_jax.datasets.dialogues.dialogue import Dialogues
from motif_jax.envs.text import registry
from motif_jax.support import digests, seeds
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_json, remove_temporaries
from motif_jax.support.interruption import Interruption
from motif_jax.support.progress import Progress

DIALOGUES, META, STAGING = "dialogues.parquet", "dialogues.json", ".staging"
_PART = re.compile(r"(\d{8})\.parquet")


@dataclass(frozen=True)
class DialoguePlan:
    """What is drawn.

    Attributes:
      task, options: of `envs.text.registry.make`.
      kind, policy: of `TextTask.stream`.
      seed: every draw follows from it and the part's number.
      count: dialogues, or groups of them.
      size: of a part, but for the last.
      folder: where parts go.
    """

    task: str
    options: Mapping[str, Any]
    kind: str
    policy: str
    seed: int
    count: int
    size: int
    folder: str

    @property
    def parts(self) -> int:
        """Number of parts."""
        return -(-self.count // self.size)

    def span(self, part: int) -> range:
        """The numbers of the groups of a part."""
        return range(part * self.size, min((part + 1) * self.size, self.count))


class DialogueRecorder:
    """A worker process that draws a part for each number and writes it; its answer is the number of dialogues."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._plan: DialoguePlan = setup["plan"]
        task = registry.make(self._plan.task, self._plan.options)
        self._stream = task.stream(self._plan.kind, self._plan.policy)

    def answer(self, request: int) -> int:
        """See `worker_process.Server`."""
        span, rng = self._plan.span(request), seeds.rng(self._plan.seed, "dialogues", request)
        drawn = self._stream.sample(rng, len(span), span.start)
        parquet.write_part(part_path(self._plan.folder, request), drawn)
        return len(drawn)

    def close(self) -> None:
        """See `worker_process.Server`."""


def part_path(folder: str | Path, part: int) -> Path:
    """The file of a part."""
    return Path(folder) / f"{part:08d}.parquet"


def collect(
    plan: DialoguePlan, folder: Path, about: Mapping[str, Any], workers: int, stop: Interruption
) -> bool:
    """Draws what is not there yet and writes dialogues.parquet and dialogues.json; False when it was stopped before that.

    Raises:
      UserError: processes die of the same part again and again.
    """
    staging = Path(plan.folder)
    staging.mkdir(parents=True, exist_ok=True)
    remove_temporaries(staging)
    done = {int(name[1]) for path in staging.iterdir() if (name := _PART.fullmatch(path.name))}
    with Progress(plan.count, "dialogues", "collect", _drawn(plan, done)) as progress:
        for part in _record(plan, done, workers, stop):
            done.add(part)
            progress.update(_drawn(plan, done))
    if len(done) < plan.parts:
        return False
    totals = Totals()
    parts = totals.counted(parquet.read(part_path(staging, part)) for part in range(plan.parts))
    parquet.write(folder / DIALOGUES, parts, about)
    atomic_write_json(
        folder / META, {**about, **totals.summary(), "digest": digests.of_file(folder / DIALOGUES)}
    )
    shutil.rmtree(staging)
    return True


def _drawn(plan: DialoguePlan, done: set[int]) -> int:
    return sum(len(plan.span(part)) for part in done)


def _record(plan: DialoguePlan, done: set[int], workers: int, stop: Interruption) -> Iterator[int]:
    """Yields parts as they are written."""
    jobs = [part for part in range(plan.parts) if part not in done]
    deaths: Counter[int] = Counter()

    def died(part: int) -> bool:
        deaths[part] += 1
        if deaths[part] >= MAX_DEATHS:
            raise UserError(f"part {part} ended {MAX_DEATHS} processes that drew it: see their output above")
        return False

    setup = {"plan": plan}
    with contextlib.closing(run_jobs(DialogueRecorder, setup, jobs, workers, stop, died)) as drawn:
        for part, _ in drawn:
            yield part


class Totals:
    """Counts dialogues while they are written."""

    def __init__(self) -> None:
        self._returns: list[np.ndarray] = []
        self._turns: list[np.ndarray] = []

    def counted(self, parts: Iterator[Dialogues]) -> Iterator[Dialogues]:
        """Passes parts on."""
        for part in parts:
            self._returns.append(part.returns())
            self._turns.append(part.turns())
            yield part

    def summary(self) -> dict[str, Any]:
        """Number of dialogues and actions; mean return with its standard error."""
        returns = np.concatenate(self._returns)
        error = returns.std(ddof=1) / np.sqrt(len(returns)) if len(returns) > 1 else 0.0
        return {
            "dialogues": len(returns),
            "actions": int(sum(turns.sum() for turns in self._turns)),
            "mean_return": float(returns.mean()),
            "standard_error": float(error),
        }
