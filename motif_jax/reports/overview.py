"""What lies in a folder of runs: each with its stage, its state, its newest numbers and the pages that show it."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motif_jax.support.curves import Curve, read_metrics
from motif_jax.support.errors import UserError
from motif_jax.support.run_folder import read_config

RUNNING, WHOLE, STOPPED, DAMAGED = "running", "whole", "stopped", "damaged"
# Stage -> the file that is there when it is done, and the numbers that say how it goes, the first that there is.
_LAST = {
    "collect": ("dataset.json", ()),
    "annotate": ("summary.json", ()),
    "merge_annotations": ("summary.json", ()),
    "train_reward": ("summary.json", ("validation/loss", "train/loss")),
    "train_agent": (None, ("episode/return", "episode/intrinsic_return", "reward/total_mean")),
    "evaluate": ("evaluation.json", ()),
    "pretrain_language_model": ("summary.json", ("validation/loss", "held_out/loss", "loss")),
    "train_text": ("summary.json", ("held_out/loss", "validation/loss", "loss")),
    "clone_behaviour": ("summary.json", ("validation/loss", "held_out/loss", "loss")),
    "collect_text": ("dialogues.json", ()),
    "evaluate_text": ("evaluation.json", ()),
}
# Folders of a run in which there are no others, and how deep runs may lie.
_INSIDE = frozenset(
    ("checkpoints", "resume", "recordings", "tensorboard", "profile", "plots", "data", "info", "tokens")
)
_DEPTH = 5
# A process on another host cannot be asked; while its files change it runs.
_FRESH_SECONDS = 120.0
# Config keys that name the runs that a page is about.
_ABOUT = (
    "agent.dir",
    "reward.dir",
    "text.dir",
    "language.dir",
    "dataset_dir",
    "evaluations",
    "methods",
    "model",
)


@dataclass(frozen=True)
class RunState:
    """A run folder as it is now.

    Attributes:
      folder: where it lies.
      stage: what it is a run of.
      state: `RUNNING`, `WHOLE`, `STOPPED` (between two starts), or `DAMAGED`.
      changed: when its files last changed, seconds since the epoch.
      done: share of its work that is done, None where that cannot be told.
      metric: name of the number that `curve` shows; '' where there is none.
      curve: that number over the run.
      pages: HTML files in it.
      about: folders that its config names, for pages that are about other runs.
      trouble: why it is damaged.
    """

    folder: Path
    stage: str
    state: str
    changed: float
    done: float | None = None
    metric: str = ""
    curve: Curve | None = None
    pages: tuple[Path, ...] = ()
    about: tuple[Path, ...] = field(default=())
    trouble: str = ""


def find(runs: Path) -> list[RunState]:
    """All runs below a folder, by path; what cannot be read is told, not raised."""
    return [_look(folder) for folder in _folders(runs, _DEPTH)]


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name == "config.json" for entry in entries):
        yield folder
    for entry in entries:
        inside = entry.name in _INSIDE or entry.name.startswith(".")
        if depth and not inside and entry.is_dir(follow_symlinks=False):
            yield from _folders(Path(entry.path), depth - 1)


def _look(folder: Path) -> RunState:
    changed = max((path.stat().st_mtime for path in folder.glob("*") if path.is_file()), default=0.0)
    pages = tuple(sorted(folder.glob("*.html")))
    try:
        config = read_config(folder)
        stage = str(config.get("stage", ""))
        last, metrics = _LAST.get(stage, (None, ()))
        curves = read_metrics(folder)
        metric = next((name for name in metrics if name in curves and len(curves[name])), "")
        done = _done(config, curves)
        whole = (done is not None and done >= 1) or (last is not None and (folder / last).is_file())
        whole = whole or (stage not in _LAST and bool(pages))
        state = RUNNING if _runs(folder, changed) else WHOLE if whole else STOPPED
        about = tuple(_named(config))
    except (UserError, OSError, AttributeError, TypeError, ValueError) as error:
        return RunState(folder, "?", DAMAGED, changed, pages=pages, trouble=str(error))
    return RunState(folder, stage, state, changed, done, metric, curves.get(metric), pages, about)


def _done(config: Mapping[str, Any], curves: Mapping[str, Curve]) -> float | None:
    """Of a training with steps: how far it is."""
    total = config.get("train_for_env_steps")
    newest = max((float(curve.x[-1]) for curve in curves.values() if len(curve)), default=None)
    return None if not total or newest is None else min(1.0, newest / total)


def _named(config: Mapping[str, Any]) -> Iterator[Path]:
    for key in _ABOUT:
        value: Any = config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, str) and value:
            for piece in value.replace(";", ",").split(","):
                yield Path(piece.rpartition("=")[2].strip())


def _runs(folder: Path, changed: float) -> bool:
    """Whether a process works in `folder`. Its lock is only looked at: to try it could keep a run from starting."""
    lock = folder / ".lock"
    try:
        _, process, _, host = lock.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return False
    if host != socket.gethostname():
        return time.time() - changed < _FRESH_SECONDS
    return _has_open(process, os.path.realpath(lock))


def _has_open(process: str, path: str) -> bool:
    """Whether a process of this machine has a file open, which it has as long as it holds its lock."""
    try:
        opened = os.listdir(f"/proc/{process}/fd")
    except PermissionError:  # another user's, which lives
        return True
    except OSError:
        return False
    for number in opened:
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{process}/fd/{number}") == path:
                return True
    return False
