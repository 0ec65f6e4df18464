"""What lies in a folder of runs: each with its stage, its state, its newest numbers and the pages that show it."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.playing import policies
from motif_jax.support import import_origin
from motif_jax.support.curves import Curve, read_metrics
from motif_jax.support.errors import UserError
from motif_jax.support.files import read_json
from motif_jax.support.run_folder import read_config

RUNNING, WHOLE, STOPPED, AT_REST, DAMAGED = "running", "whole", "stopped", "at rest", "damaged"
# Stage -> the file that is there when it is done, and the numbers that say how it goes, the first that there is.
_LAST: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "annotate": ("summary.json", ()),
    "behaviour": ("behaviour.html", ()),
    "check_reward": ("agreement.json", ()),
    "clone_behaviour": ("summary.json", ("validation/loss", "train/loss")),
    "collect": ("dataset.json", ()),
    "collect_text": ("dialogues.json", ()),
    "collect_trajectories": ("trajectories.json", ()),
    "compare": ("comparison.html", ()),
    "evaluate": ("evaluation.json", ()),
    "evaluate_text": ("evaluation.json", ()),
    "explain_reward": ("summary.json", ()),
    "export_dataset": ("pairs.parquet", ()),
    "export_reward": ("reward.safetensors", ()),
    "import_dataset": ("dataset.json", ()),
    "import_dialogues": ("dialogues.json", ()),
    "merge_annotations": ("summary.json", ()),
    "model_card": ("MODEL_CARD.md", ()),
    "pretrain_language_model": ("summary.json", ("validation/loss", "train/loss")),
    "rank_text": ("ranks.html", ()),
    "report": ("report.html", ()),
    "test_language_agent": ("tests.json", ()),
    "train_agent": (None, ("episode/return", "episode/intrinsic_return", "reward/total_mean")),
    "train_reward": ("summary.json", ("validation/loss", "train/loss")),
    "train_text": ("summary.json", ("validation/loss", "train/loss")),
    "train_upvote": ("summary.json", ("validation/loss", "train/loss")),
}
_NOTHING: tuple[str | None, tuple[str, ...]] = (None, ())
# Those whose file is there before: its key `finished` says whether they are done.
_SAYS = ("annotate", "test_language_agent")
# Folders directly in a run's in which there are no others, and how deep runs may lie.
_INSIDE = frozenset(
    ("checkpoints", "resume", "recordings", "tensorboard", "profile", "plots", "data", "info", "tokens")
)
_DEPTH = 5
# A process on another host cannot be asked; while its files change it runs.
_FRESH_SECONDS = 120.0
# Those whose file stays when they are continued to more episodes: its key `episodes` says of how many it is.
_EPISODES = ("evaluate", "evaluate_text")
# Config keys that name the run that a page is about, those that name several with commas between, and what names none.
_ABOUT = ("agent", "agent.dir", "dataset_dir", "language.dir", "model", "policy", "reward.dir", "text.dir")
_SEVERAL = ("agents", "evaluations")
_NO_RUN = ("", policies.RANDOM, policies.BOT, policies.AGENT)
_ANEW = "the same command writes it anew"


@dataclass(frozen=True)
class RunState:
    """A run folder as it is now.

    Attributes:
      folder: where it lies.
      stage: what it is a run of.
      state: `RUNNING`, `WHOLE`, `STOPPED` (between two starts), `AT_REST` (no process works in it, and it does not say whether it is done),
        or `DAMAGED`.
      changed: when its files last changed, seconds since the epoch.
      done: share of its work that is done, None where that cannot be told.
      metric: name of the number that `curve` shows; '' where there is none.
      curve: that number over the run.
      pages: HTML files in it.
      about: folders that its config names, without links in them, for pages that are about other runs.
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


class _Progress(NamedTuple):
    """What a run's metrics say: the number that is shown, its curve, and the newest step, None without any."""

    metric: str
    curve: Curve | None
    newest: float | None


class Readings:
    """What the metrics of runs say, which are read again only where their file has changed."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[object, _Progress]] = {}

    def of(self, folder: Path, stage: str) -> _Progress:
        """What those of the run in `folder` say now; UserError where they are damaged."""
        stamp: tuple[str, int, int] | None = None
        with contextlib.suppress(OSError):
            file = os.stat(folder / "metrics.jsonl")
            stamp = stage, file.st_mtime_ns, file.st_size
        before, known = self._read.get(folder, (None, None))
        if known is None or stamp is None or before != stamp:
            known = _progress(read_metrics(folder), stage)
            self._read[folder] = stamp, known
        return known


def _progress(curves: Mapping[str, Curve], stage: str) -> _Progress:
    metric = next((name for name in _LAST.get(stage, _NOTHING)[1] if len(curves.get(name, ()))), "")
    newest = max((float(curve.x[-1]) for curve in curves.values() if len(curve)), default=None)
    return _Progress(metric, curves.get(metric), newest)


def find(runs: Path, readings: Readings | None = None) -> list[RunState]:
    """All runs below a folder, by path; what cannot be read is told, not raised.

    Args:
      runs: the folder.
      readings: of an earlier look at it, where there was one; they are brought up to date.
    """
    readings = readings or Readings()
    found = (_look(folder, readings) for folder in _folders(runs, _DEPTH))
    return [run for run in found if run is not None]


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    of_a_run = any(entry.name == "config.json" for entry in entries)
    if of_a_run:
        yield folder
    for entry in entries:
        inside = (of_a_run and entry.name in _INSIDE) or entry.name.startswith(".")
        if depth and not inside and entry.is_dir(follow_symlinks=False):
            yield from _folders(Path(entry.path), depth - 1)


def _look(folder: Path, readings: Readings) -> RunState | None:
    """What there is to say of a folder with a config; None where it is no run's: language models have one, too."""
    changed, pages = _changed(folder), tuple(sorted(folder.glob("*.html")))
    try:
        config = read_config(folder)
        if "stage" not in config:
            return None
        stage = str(config["stage"])
        progress = readings.of(folder, stage)
        done = _done(config, progress.newest)
        state = RUNNING if _runs(folder, changed) else _resting(folder, config, done, pages)
        about = tuple(_named(config))
    except (UserError, OSError, AttributeError, TypeError, ValueError) as error:
        return RunState(folder, "?", DAMAGED, changed, pages=pages, trouble=str(error))
    return RunState(folder, stage, state, changed, done, progress.metric, progress.curve, pages, about)


def _changed(folder: Path) -> float:
    """When a file in `folder` was changed last; those that go meanwhile, as a run's temporary ones do, do not count."""
    newest = 0.0
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(FileNotFoundError):
                if entry.is_file():
                    newest = max(newest, entry.stat().st_mtime)
    return newest


def _resting(folder: Path, config: Mapping[str, Any], done: float | None, pages: Sequence[Path]) -> str:
    """The state of a run in which no process works."""
    stage = str(config["stage"])
    last, _ = _LAST.get(stage, _NOTHING)
    whole = (done is not None and done >= 1) or (last is not None and (folder / last).is_file())
    if whole and stage in _SAYS:
        whole = bool(read_json(folder / str(last), _ANEW).get("finished"))
    if whole and stage in _EPISODES and (episodes := config.get("episodes")) is not None:
        whole = read_json(folder / str(last), _ANEW).get("episodes") == episodes
    imported = (folder / import_origin.FILE).is_file() and import_origin.has_checkpoints(folder)
    if whole or imported or (stage not in _LAST and pages):
        return WHOLE
    return STOPPED if stage in _LAST else AT_REST


def _done(config: Mapping[str, Any], newest: float | None) -> float | None:
    """Of a training with steps: how far it is."""
    total = config.get("train_for_env_steps")
    return None if not total or newest is None else min(1.0, newest / total)


def _named(config: Mapping[str, Any]) -> Iterator[Path]:
    """The folders that a config names; of those that are none no run is found."""
    given = [_text(config, key) for key in _ABOUT]
    given += [part for key in _SEVERAL for part in _text(config, key).split(",")]
    for method in _text(config, "methods").split(";"):
        given += method.partition("=")[2].split(",")  # 'name=folder,folder'
    for folder in map(str.strip, given):
        if folder not in _NO_RUN:
            yield Path(os.path.realpath(folder))


def _text(config: Mapping[str, Any], key: str) -> str:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


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
