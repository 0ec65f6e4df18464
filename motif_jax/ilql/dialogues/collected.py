"""Collects dialogues: worker processes draw parts, each from the seed and its number alone, which
become one file.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from motif_jax.core import digests, seeds
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json, remove_temporaries
from motif_jax.core.interruption import Interruption
from motif_jax.core.progress import Progress
from motif_jax.ilql.dialogues import parquet
from motif_jax.ilql.dialogues.dialogue import Dialogues
from motif_jax.ilql.tasks import registry
from motif_jax.rl.actors.processes import MAX_DEATHS
from motif_jax.rl.actors.worker_process import run_jobs

DIALOGUES, META, STAGING = "dialogues.parquet", "dialogues.json", ".staging"
_INPUTS = "inputs.json"  # of the parts beside it
_PART = re.compile(r"\d{8}\.parquet")


@dataclass(frozen=True)
class DialoguePlan:
    """A collection of `count` dialogues (or groups) in parts of `size`; draws follow from the seed
    and the part's number.
    """

    task: str
    options: Mapping[str, Any]
    kind: str
    policy: str
    seed: int
    count: int
    size: int
    folder: str
    patient: bool = False

    @property
    def parts(self) -> int:
        return math.ceil(self.count / self.size)

    def span(self, part: int) -> range:
        """The numbers of the dialogues of a part."""
        return range(part * self.size, min((part + 1) * self.size, self.count))


class DialogueRecorder:
    """A worker process that draws and writes a part for each number; it answers with the number of
    failed requests to a server.
    """

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._plan: DialoguePlan = setup["plan"]
        self._task = registry.make(self._plan.task, self._plan.options)
        if self._task.scored_by():
            from motif_jax.ilql.tasks import text_scores

            text_scores.attach(self._task)
        self._stream = self._task.stream(self._plan.kind, self._plan.policy)

    def answer(self, request: int) -> int:
        span = self._plan.span(request)
        rng = seeds.rng(self._plan.seed, "dialogues", request)
        failures_before = self._task.failures()
        dialogues = self._stream(rng, len(span), span.start)
        failures = self._task.failures() - failures_before
        parquet.write(_part_path(self._plan.folder, request), [dialogues], {"failures": failures})
        return failures

    def close(self) -> None: ...


def _part_path(folder: str | Path, part: int) -> Path:
    return Path(folder) / f"{part:08d}.parquet"


def collect(
    plan: DialoguePlan,
    folder: Path,
    about: Mapping[str, Any],
    workers: int,
    stop: Interruption,
    finish: Callable[[Path], None] = lambda folder: None,
    inputs: Mapping[str, Any] = MappingProxyType({}),
) -> bool:
    """Draws what is missing, writes dialogues.parquet, calls `finish`, writes dialogues.json; False
    when stopped before that.

    Args:
      inputs: what determines the dialogues besides the plan, JSON-able: digests of the task's
          files.

    Raises:
      UserError: `MAX_DEATHS` processes died of the same part, or `inputs` changed since the first
          part was drawn.
    """
    staging = Path(plan.folder)
    staging.mkdir(parents=True, exist_ok=True)
    # What workers that were killed left half written; whole parts stay.
    remove_temporaries(staging)
    _pin_inputs(staging, inputs)
    done = {int(path.stem) for path in staging.iterdir() if _PART.fullmatch(path.name)}
    # Each part keeps its own, so that those of earlier starts count.
    failures = sum(parquet.about(_part_path(staging, part)).get("failures", 0) for part in done)

    def lost(part: int) -> None:
        raise UserError(
            f"{MAX_DEATHS} processes died while they drew part {part}: see their output above"
        )

    jobs = [part for part in range(plan.parts) if part not in done]
    drawn = sum(len(plan.span(part)) for part in done)
    with Progress(plan.count, "dialogues", "collect", drawn) as progress:
        answers = run_jobs(
            DialogueRecorder, {"plan": plan}, jobs, workers, stop, lost, plan.patient
        )
        for part, failed in answers:
            done.add(part)
            drawn += len(plan.span(part))
            failures += failed
            progress.update(drawn, **({"failed_requests": failures} if failures else {}))
    # Stopped; the parts stay, and the next start draws the others.
    if len(done) < plan.parts:
        return False
    totals = DialogueTotals()
    parts = totals.counted(parquet.read(_part_path(staging, part)) for part in range(plan.parts))
    parquet.write(folder / DIALOGUES, parts, about)
    meta = {**about, **totals.summary(), "failed_requests": failures}
    # Before dialogues.json, with which `collect_text` takes the folder for complete.
    finish(folder)
    atomic_write_json(folder / META, {**meta, "digest": digests.of_file(folder / DIALOGUES)})
    # Last: a kill before it leaves parts that the next start of the command removes.
    shutil.rmtree(staging)
    return True


def _pin_inputs(staging: Path, inputs: Mapping[str, Any]) -> None:
    path = staging / _INPUTS
    # As JSON gives it back, with lists for tuples.
    now = json.loads(json.dumps(dict(inputs)))
    before = read_json(path, f"remove {staging} and collect again") if path.exists() else now
    changed = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    if changed:
        raise UserError(
            f"{', '.join(changed)} changed since the first dialogues in {staging} were drawn: collect into another --workdir"
        )
    atomic_write_json(path, now)


class DialogueTotals:
    """Counts dialogues while they are written."""

    def __init__(self) -> None:
        self._returns: list[np.ndarray] = []
        self.count = self._actions = 0

    def counted(self, parts: Iterator[Dialogues]) -> Iterator[Dialogues]:
        for part in parts:
            self._returns.append(part.returns())
            self.count += len(part)
            self._actions += int(part.action_counts().sum())
            yield part

    def summary(self) -> dict[str, Any]:
        returns = np.concatenate(self._returns)
        mean = returns.mean() if len(returns) else 0.0
        error = returns.std(ddof=1) / np.sqrt(len(returns)) if len(returns) > 1 else 0.0
        return {
            "dialogues": self.count,
            "actions": self._actions,
            "mean_return": float(mean),
            "standard_error": float(error),
        }
