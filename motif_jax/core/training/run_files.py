"""The files of an offline training: a checkpoint for each evaluation, one inside an epoch, and a
summary.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core import run_folder
from motif_jax.core.checkpoints import JSON, Checkpoints
from motif_jax.core.devices.hosts import Hosts
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, finite, read_json, remove_replaced
from motif_jax.core.metric_files import best_row
from motif_jax.core.training.config import DatasetConfig
from motif_jax.core.training.task import CRITERION, Evaluation, Task, TrainingPosition

CHECKPOINTS = "checkpoints"
RESUME = "resume"
POSITION = "position"  # item of a checkpoint
# The metric of checkpoints by which the best one stays: `CRITERION`.
_BEST_METRIC = CRITERION.replace("/", "_")
# Stands among the digests of files where each device draws its own dropout.
DEVICES = "number of devices"
# Prefix of the digests of files that options name.
FILE_OF = "file of "
# Folders and evaluations that `default_step` has reported in this process.
_reported: set[tuple[Path, int]] = set()


class RunFiles(contextlib.ExitStack):
    """The files of one run folder. All hosts save checkpoints; the first one writes the other
    files.

    A checkpoint holds the task's items of the state, and `position` and `curve`; that of an
    evaluation also the evaluation's items and `plain_config`.
    """

    def __init__(
        self,
        workdir: Path,
        task: Task,
        config: DatasetConfig,
        plain_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._config_item = (
            {} if plain_config is None else {"config": run_folder.as_plain(plain_config)}
        )
        self._workdir = workdir
        self._task = task
        self._keep = config.keep_checkpoints
        self._save_every_seconds = config.save_every_seconds
        self._evaluations = self.enter_context(
            Checkpoints(
                workdir / CHECKPOINTS, keep=self._keep, keep_best=_BEST_METRIC, best_mode="min"
            )
        )
        self._resume = self.enter_context(Checkpoints(workdir / RESUME, keep=1))
        self._saved_at = time.monotonic()
        self._hosts = Hosts()

    def restore(self, state: Any) -> tuple[Any, TrainingPosition] | None:
        """The newest state in the folder, of the shapes in `state`, and its position; None in a new
        folder. Raises UserError where the hosts see different ones.
        """
        newest = _newest((self._evaluations, self._resume))
        checkpoint_name = None
        if newest is not None:
            checkpoint_name = f"{newest[0].folder.name}/{newest[1]}"
        self._hosts.require_equal(
            checkpoint_name,
            f"--workdir={self._workdir} must be one folder that all hosts share: its newest checkpoint",
        )
        if newest is None:
            return None
        checkpoints, number, stored = newest
        # Before the arrays are read, which may take long.
        _refuse_other_data(self._workdir, stored["digests"], self._task.digests, self._task.source)
        items = checkpoints.restore(number, {**self._task.items(state), "curve": JSON})
        rows = items.pop("curve")["rows"]
        position = TrainingPosition(stored["step"], rows, stored["sums"], stored["skipped"])
        # A kill after an evaluation's checkpoint has left the task's files without that evaluation.
        self._write(rows)
        return state._replace(**items), position

    def _position_item(self, position: TrainingPosition) -> dict[str, Any]:
        """The item `position` of a checkpoint."""
        item = dataclasses.asdict(position)
        item.pop("rows")
        item["epoch"] = position.epoch
        item["step_in_epoch"] = position.step - position.epoch * self._task.steps_per_epoch
        item["digests"] = dict(self._task.digests)
        return item

    def _items(self, state: Any, position: TrainingPosition) -> dict[str, Any]:
        return {
            **self._task.items(state),
            POSITION: self._position_item(position),
            "curve": {"rows": position.rows},
        }

    def save_is_due(self) -> bool:
        """Whether `save_every_seconds` have passed since the last save."""
        return time.monotonic() - self._saved_at >= self._save_every_seconds

    def save_position(self, state: Any, position: TrainingPosition) -> None:
        """Saves a state inside an epoch, in place of the one before."""
        self._resume.save(position.step, self._items(state, position))
        self._saved_at = time.monotonic()

    def save_evaluation(
        self, state: Any, position: TrainingPosition, evaluation: Evaluation
    ) -> None:
        """Saves the evaluation that `position` ends with, then the task's own files."""
        score = position.rows[-1][CRITERION]
        items = {**self._items(state, position), **evaluation.items, **self._config_item}
        # Of equal evaluations the first one is the best, and stays.
        is_best = best_row(position.rows, CRITERION) == position.epoch and not math.isnan(score)
        # `Checkpoints` would keep the newest of equals. Where it removes any, only those that were
        # the best so far have a metric.
        metrics = {_BEST_METRIC: score} if self._keep is None or is_best else {}
        self._evaluations.save(position.epoch, items, metrics=metrics)
        self._saved_at = time.monotonic()
        self._write(position.rows)

    def _write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if self._hosts.is_first:
            self._task.write(self._workdir, rows)

    def write_summary(self, position: TrainingPosition, use_best: bool) -> None:
        """Writes summary.json: the last evaluation, the best one, and which of them is the
        default.
        """
        # The summary names evaluations, so they have to be saved before it.
        self._evaluations.wait()
        if not self._hosts.is_first:
            return
        rows = position.rows
        best = best_row(rows, CRITERION)
        used = best if use_best else position.epoch
        summary = {
            "evaluations": len(rows),
            "stopped_early": position.step < self._task.steps,
            "steps_left_out": position.skipped,
            "best_evaluation": best,
            "used_evaluation": used,
            **finite({"best": rows[best], "used": rows[used], "last": rows[-1]}),
        }
        atomic_write_json(self._workdir / "summary.json", summary)


def default_step(checkpoints: Checkpoints, config: Mapping[str, Any]) -> int | None:
    """The evaluation that is used where no step is given; None if there is none yet.

    It is the newest one; in a run that stops early, whose newest is `patience` evaluations too
    late, the best one, which is reported once in a process.
    """
    newest = checkpoints.latest()
    if newest is None or not config.get("early_stopping", {}).get("patience", 0):
        return newest
    rows = checkpoints.restore(newest, {"curve": JSON})["curve"]["rows"]
    best = int(rows[best_row(rows, CRITERION)]["epoch"])
    if best == newest or best not in checkpoints.steps():
        return newest
    folder = checkpoints.folder.parent.resolve()
    if (folder, best) not in _reported:
        _reported.add((folder, best))
        print(
            f"{folder}: uses evaluation {best} of 0 to {newest}, which has the best validation loss (the run stops early); "
            "give a step for another"
        )
    return best


def export(
    workdir: Path,
    description: Path,
    wanted: Mapping[str, Any],
    write: Callable[[dict[str, Any], dict[str, Any]], None],
) -> Path:
    """Writes the folder of `description` from the evaluation chosen in summary.json, unless it
    exists; returns that folder.

    All hosts of a run call it, and the first one calls `write` with the items that are `wanted` and
    entries for the description, a JSON file that names the evaluation of its folder, at the top or
    under `trained`.
    """
    hosts = Hosts()
    keys = ("used_evaluation", "used")
    summary = hosts.on_first(
        lambda: read_json(workdir / "summary.json", "give the command again", keys=keys)
    )
    trained = {"evaluation": summary["used_evaluation"], **summary["used"]}

    def is_written() -> bool:
        if not description.exists():
            return False
        written = read_json(description, f"remove {description.parent}")
        return bool(trained.items() <= written.get("trained", written).items())

    if hosts.on_first(is_written):
        hosts.on_first(lambda: remove_replaced(description.parent))
    else:
        with Checkpoints(workdir / CHECKPOINTS, keep=None, read_only=True) as checkpoints:
            items = checkpoints.restore(summary["used_evaluation"], wanted)
        if hosts.is_first:
            write(items, trained)
    return description.parent


def _refuse_other_data(
    workdir: Path, before: Mapping[str, str], now: Mapping[str, str], source: str
) -> None:
    """Raises UserError unless the digests `before`, of the checkpoint, and `now`, of the task, are
    equal.
    """
    changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if changed:
        raise UserError(
            f"{workdir} was trained on other {', '.join(changed)} than {source} has now: use the same to continue, or "
            "another --workdir"
        )


def _newest(folders: Sequence[Checkpoints]) -> tuple[Checkpoints, int, dict[str, Any]] | None:
    """The checkpoint with the most steps: its folder, its number and its item `position`; None
    without checkpoints.
    """
    candidates: list[tuple[Checkpoints, int, dict[str, Any]]] = []
    for checkpoints in folders:
        latest = checkpoints.latest()
        if latest is not None:
            stored = checkpoints.restore(latest, {POSITION: JSON})[POSITION]
            candidates.append((checkpoints, latest, stored))
    return max(candidates, key=lambda candidate: candidate[2]["step"], default=None)
