"""A task of subtractions for the offline trainer, without compiled programs, and checkpoints as
plain files.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.core.metrics import read_metrics
from motif_jax.core.sections import EarlyStopping, Nonfinite, Optimizer
from motif_jax.core.training.config import DatasetConfig
from motif_jax.core.training.task import Evaluation, Task, TrainingPosition
from motif_jax.core.training.trainer import OfflineTrainer


class FileCheckpoints(contextlib.nullcontext):
    """Checkpoints as plain files, with the methods of `core.checkpoints.Checkpoints` that a run
    calls.
    """

    def __init__(self, folder: Path, keep: int | None = None, **_: Any) -> None:
        super().__init__(self)
        self.folder = folder
        self.keep = keep
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def items(self) -> dict[int, Any]:
        return {int(path.name): pickle.loads(path.read_bytes()) for path in self.folder.iterdir()}

    def wait(self) -> None:
        """Nothing is written behind a caller's back."""

    def save(self, step: int, items: Any, metrics: Any = None) -> None:
        if self.keep == 1:
            for path in self.folder.iterdir():
                path.unlink()
        (self.folder / str(step)).write_bytes(pickle.dumps(dict(items)))

    def latest(self, **_: Any) -> int | None:
        return max(self.items, default=None)

    def restore(self, step: int, names: Any) -> Any:
        return {name: self.items[step][name] for name in names}


class PlainParallel:
    """The methods of `DataParallel` that a trainer calls, without compiled programs: steps are
    functions of numpy arrays.
    """

    platform = "cpu"

    def __init__(self) -> None:
        self.devices = jax.local_devices()[:1]
        self.local_devices = self.devices

    def wrap(self, function: Any, donate_state: bool) -> Any:
        return function

    def put_whole(self, tree: Any, axes: int) -> Any:
        return tree

    def replicate_freeing(self, trees: list[Any]) -> Any:
        return trees.pop()


class Sums(NamedTuple):
    """A hundred less all numbers so far, and the sums [2] of the first and of the second numbers of
    steps.
    """

    total: Any
    sums: Any


class Subtractor(Task):
    """Takes the numbers of each step, 2 n and 2 n + 1, from a hundred; without a compiled
    program.
    """

    title = "subtract"
    unit = "numbers"
    source = "a text"
    steps = 7
    steps_per_epoch = 3
    chunk_steps = 2
    remedy = "smaller numbers"

    def __init__(
        self, poisoned: Sequence[int] = (), stop_at: int | None = None, aim: float = 0
    ) -> None:
        self.parallel: Any = PlainParallel()
        self.digests = {"the text": "a"}
        self.poisoned = poisoned
        self.stop_at = stop_at
        self.aim = aim
        # First steps and lengths of the chunks that the trainer took.
        self.chunks: list[tuple[int, int]] = []

    def init_state(self) -> Sums:
        return Sums(np.float32(100), np.zeros(2, np.float32))

    def step(self, state: Sums, shared: Any, batch: Any) -> tuple[Sums, dict[str, Any]]:
        x = batch["x"]
        metrics = {"loss": state.total, "gradient_norm": x.sum()}
        return Sums(state.total - x.sum(), state.sums + x), metrics

    def batches(self, first: int, count: int) -> dict[str, np.ndarray]:
        self.chunks.append((first, count))
        steps = np.arange(first, first + count)
        if self.stop_at in steps:
            os.kill(os.getpid(), signal.SIGTERM)
        x = np.arange(2 * first, 2 * (first + count), dtype=np.float32).reshape(count, 2)
        x[np.isin(steps, self.poisoned), 1] = np.nan
        return {"x": x}

    def evaluate(self, state: Sums, shared: Any, position: TrainingPosition) -> Evaluation:
        row = {
            "validation/loss": abs(float(state.total) - self.aim),
            "norm": position.mean("gradient_norm"),
        }
        row |= self.shown(position.sums)
        return Evaluation(row, {"about": {"sums": state.sums.tolist()}}, f"at {position.step}")

    def logged(self, metrics: Mapping[str, np.ndarray], seconds: float) -> dict[str, float]:
        return {f"logged/{name}": values.sum() for name, values in metrics.items()}

    def write(self, workdir: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        (workdir / "rows.txt").write_text(f"{len(rows)}")


def train(
    folder: Path,
    task: Subtractor,
    patience: int = 0,
    most_skips: int = 0,
    plain_config: Mapping[str, Any] | None = None,
    **keys: Any,
) -> bool:
    """Trains with `keys` of a `DatasetConfig`; False where the run was stopped before its end."""
    config = DatasetConfig(
        batch_size=2,
        chunk_steps=task.chunk_steps,
        optimizer=Optimizer(),
        early_stopping=EarlyStopping(patience=patience),
        nonfinite=Nonfinite(policy="skip" if most_skips else "stop", most_skips=most_skips),
        **keys,
    )
    return OfflineTrainer(task, config, plain_config).run(folder)


def evaluations_of(folder: Path) -> dict[int, Any]:
    """Items of each evaluation's checkpoint."""
    return FileCheckpoints(folder / "checkpoints").items


def resume_points_of(folder: Path) -> dict[int, Any]:
    """Items of the checkpoint from which a stopped run goes on, by its step."""
    return FileCheckpoints(folder / "resume").items


def outcome_of(folder: Path) -> dict[str, Any]:
    """What a run leaves, without times: its evaluations, its logged rows, its summary and the
    task's own file.
    """
    rows = [
        {name: value for name, value in row.items() if name not in ("time", "evaluation/seconds")}
        for row in read_metrics(folder)
    ]
    return {
        "evaluations": jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), evaluations_of(folder)),
        "metrics": rows,
        "summary": json.loads((folder / "summary.json").read_text()),
        "rows": (folder / "rows.txt").read_text(),
    }
