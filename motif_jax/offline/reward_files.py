"""What a reward training keeps on disk: checkpoints, its place in the middle of an epoch, and CSV files."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.algorithms.preference import PreferenceState
from motif_jax.offline.reward_data import RewardData
from motif_jax.rewards.normalisation import two_decimals
from motif_jax.rewards.trained import best_evaluation
from motif_jax.support.checkpoints import JSON, Checkpoints
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_json, atomic_write_text
from motif_jax.support.run_folder import as_plain

CHECKPOINTS, RESUME = "checkpoints", "resume"
TRAIN_CSV, VALIDATION_CSV = "train_metrics.csv", "val_metrics.csv"
QUANTILES_CSV = "reward_metrics/train_norm_quantiles.csv"


@dataclasses.dataclass
class Position:
    """How far a training is; everything in it is JSON.

    Attributes:
      epoch: finished epochs.
      step: optimiser steps taken.
      step_in_epoch: of them, those in the epoch under way.
      rows: one for each evaluation: its metrics by name.
      sums: of the epoch under way: over batches of loss, accuracy, gradient norm, and counts.
    """

    epoch: int = 0
    step: int = 0
    step_in_epoch: int = 0
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    sums: dict[str, float] = dataclasses.field(default_factory=dict)

    def add(self, numbers: Mapping[str, np.ndarray]) -> None:
        """Adds the metrics [steps] of a chunk to the sums; accuracies count where a batch has any."""
        counted = np.asarray(numbers["counted"]) > 0
        parts = {
            "batches": counted.size,
            "loss": np.sum(numbers["loss"], dtype=np.float64),
            "accuracy_batches": counted.sum(),
            "accuracy": np.sum(np.asarray(numbers["accuracy"], np.float64)[counted]),
            "gradient_norm": np.sum(numbers["gradient_norm"], dtype=np.float64),
            "loss_pairs": np.sum(numbers["pairs"]),
            "accuracy_pairs": np.sum(numbers["counted"]),
        }
        for name, value in parts.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)

    def shown(self) -> dict[str, float]:
        """Loss and accuracy of the epoch so far, for the progress line."""
        return {"loss": self._mean("loss", "batches"), "accuracy": self._mean("accuracy", "accuracy_batches")}

    def _mean(self, name: str, count: str) -> float:
        number = self.sums.get(count, 0.0)
        return self.sums[name] / number if number else math.nan

    def close_epoch(self, statistics: Mapping[str, Any], pairs: Mapping[str, Any]) -> dict[str, Any]:
        """Appends the row of an evaluation, empties the sums, and returns the row."""
        row: dict[str, Any] = {"epoch": self.epoch, "step": self.step, **pairs}
        row["train/loss"] = self._mean("loss", "batches")
        row["train/accuracy"] = self._mean("accuracy", "accuracy_batches")
        row["train/gradient_norm"] = self._mean("gradient_norm", "batches")
        row["train/loss_pairs"] = int(self.sums.get("loss_pairs", 0))
        row["train/accuracy_pairs"] = int(self.sums.get("accuracy_pairs", 0))
        row["reward/mean"], row["reward/variance"] = statistics["mean"], statistics["variance"]
        row["reward/disagreement"] = statistics["disagreement"]
        row["reward/pairs"], row["reward/steps"] = statistics["num_pairs"], statistics["num_steps"]
        row["reward/distinct"] = statistics["num_distinct"]
        for level, value in zip(statistics["quantile_levels"], statistics["quantiles"], strict=True):
            row[f"reward/quantile_{round(100 * level):02d}"] = value
        self.rows.append(row)
        self.sums = {}
        return row

    def best(self) -> int:
        """The evaluation with the smallest validation loss, the first of equals; the first of all without any."""
        return best_evaluation(self.rows)


class RewardFiles:
    """The files of one reward run folder."""

    def __init__(self, workdir: Path, config: ConfigDict, data: RewardData) -> None:
        self._workdir, self._config, self._digests = workdir, config, data.digests
        self._evaluations = Checkpoints(workdir / CHECKPOINTS, keep=None)
        self._resume = Checkpoints(workdir / RESUME, keep=1)
        self._saved = time.monotonic()

    def __enter__(self) -> RewardFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._evaluations.close()
        self._resume.close()

    def restore(self, abstract: PreferenceState) -> tuple[PreferenceState, Position] | None:
        """The newest state in the folder and its position; None in a new folder.

        Raises:
          UserError: the checkpoints are of a model of other shapes.
        """
        found = _newest((self._evaluations, self._resume))
        if found is None:
            return None
        checkpoints, latest, place = found
        wanted = {"params": abstract.params, "opt_state": abstract.opt_state}
        items = checkpoints.restore(latest, {**wanted, "curve": JSON})
        position = Position(
            place["epoch"], place["step"], place["step_in_epoch"], items["curve"]["rows"], place["sums"]
        )
        self._write_csv(position.rows)
        step = np.asarray(position.step, np.int32)
        return PreferenceState(items["params"], items["opt_state"], step, None), position

    def _items(self, state: PreferenceState, position: Position) -> dict[str, Any]:
        place = dataclasses.asdict(position)
        place.pop("rows")
        return {
            "params": state.params,
            "opt_state": state.opt_state,
            "position": {**place, "digests": self._digests},
            "curve": {"rows": position.rows},
        }

    def save_is_due(self) -> bool:
        """Whether `config.save_every_seconds` have passed since the last save."""
        return time.monotonic() - self._saved >= self._config.save_every_seconds

    def save_position(self, state: PreferenceState, position: Position) -> None:
        """Saves a place in the middle of an epoch; only the newest stays."""
        self._resume.save(position.step, self._items(state, position))
        self._saved = time.monotonic()

    def save_evaluation(
        self, state: PreferenceState, position: Position, statistics: Mapping[str, Any]
    ) -> None:
        """Saves evaluation number `position.epoch` with its own statistics, then the CSV files."""
        items = self._items(state, position)
        items["statistics"] = dict(statistics)
        items["config"] = as_plain(self._config)
        loss = position.rows[-1]["validation/loss"]
        self._evaluations.save(position.epoch, items, metrics={"validation_loss": loss})
        self._saved = time.monotonic()
        self._write_csv(position.rows)

    def _write_csv(self, rows: list[dict[str, Any]]) -> None:
        """The published files: one row an epoch, one an evaluation, one an evaluation."""
        train = ["epoch,total_train_loss,total_train_acc"]
        train += [
            f"{row['epoch']},{_cell(row['train/loss'])},{_cell(row['train/accuracy'])}"
            for row in rows
            if row["epoch"]
        ]
        validation = ["iter,total_val_loss,score_validation_accs,validation_accs"]
        names = ("csv_validation_loss", "csv_score_accuracy", "csv_validation_accuracy")
        validation += [f"{row['epoch']}," + ",".join(_cell(row[name]) for name in names) for row in rows]
        levels = [round(0.05 * i, 2) for i in range(1, 20)]
        quantiles = [",".join(f"{level:.2f}" for level in levels)]
        for row in rows:
            values = [row[f"reward/quantile_{round(100 * level):02d}"] for level in levels]
            if self._config.compat.quantile_two_decimals:
                values = two_decimals(values)
            quantiles.append(
                ",".join(f"{v:.2f}" if self._config.compat.quantile_two_decimals else repr(v) for v in values)
            )
        for name, lines in ((TRAIN_CSV, train), (VALIDATION_CSV, validation), (QUANTILES_CSV, quantiles)):
            atomic_write_text(self._workdir / name, "\n".join(lines) + "\n")

    def finished(self, position: Position) -> bool:
        """Whether early stopping ends the training: no better validation loss for `patience` evaluations."""
        patience = self._config.early_stopping.patience
        return patience > 0 and len(position.rows) - 1 - position.best() >= patience

    def write_summary(self, position: Position) -> None:
        """Writes summary.json: the last evaluation, the best, and the one that the reward's users take."""
        self._evaluations.wait()
        best = position.best()
        used = best if self._config.early_stopping.patience else len(position.rows) - 1
        atomic_write_json(
            self._workdir / "summary.json",
            {
                "evaluations": len(position.rows),
                "stopped_early": position.epoch < self._config.epochs,
                "best_evaluation": best,
                "best": _without_nan(position.rows[best]),
                "used_evaluation": used,
                "used": _without_nan(position.rows[used]),
                "last": _without_nan(position.rows[-1]),
            },
        )


def refuse_other_data(workdir: Path, config: ConfigDict, data: RewardData) -> None:
    """Refuses to continue the run in `workdir` on other data than it was trained on; a new folder is always fine.

    Raises:
      UserError: names which arrays, labels or targets are not the same.
    """
    there = [folder for name in (CHECKPOINTS, RESUME) if (folder := workdir / name).is_dir()]
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(Checkpoints(folder, keep=None, read_only=True)) for folder in there]
        found = _newest(opened)
    if found is None:
        return
    before, now = found[2]["digests"], data.digests
    changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if changed:
        raise UserError(
            f"{workdir} was trained on other {', '.join(changed)} than {config.dataset_dir} ({config.annotator}) has "
            "now: use the same to continue, or another --workdir"
        )


def _newest(folders: Sequence[Checkpoints]) -> tuple[Checkpoints, int, dict[str, Any]] | None:
    """The checkpoint with the most optimiser steps: where it lies, its number and its position."""
    found = []
    for checkpoints in folders:
        latest = checkpoints.latest()
        if latest is not None:
            found.append((checkpoints, latest, checkpoints.restore(latest, {"position": JSON})["position"]))
    return max(found, key=lambda entry: entry[2]["step"]) if found else None


def _cell(value: float) -> str:
    return "" if math.isnan(value) else repr(float(value))


def _without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()}
