"""Collects dialogues of a text task as one parquet file, resumably: worker processes draw parts,
each from the seed and its number alone, which become one file.
"""

from __future__ import annotations

import functools
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
from ml_collections import ConfigDict

from motif_jax.core import capacity, digests, run_folder, seeds
from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json, remove_temporaries
from motif_jax.core.interruption import EXIT_CODE, Interruption, StoppedError
from motif_jax.core.progress import Progress
from motif_jax.ilql.config import CollectTextConfig
from motif_jax.ilql.dialogues import dialogue_files, task_files
from motif_jax.ilql.dialogues.dialogue import Dialogues
from motif_jax.ilql.tasks import registry
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.ilql.tasks.reddit import task as reddit
from motif_jax.rl.actors.processes import MAX_DEATHS
from motif_jax.rl.actors.worker_process import run_jobs
from motif_jax.schema import read_section

# Everything that decides what is drawn, but for where servers are; only the number of workers may
# change besides.
IDENTITY = (
    "task",
    "kind",
    "policy",
    "options",
    "wordle",
    "visdial",
    "reddit",
    "babyai_text",
    "seed",
    "num_dialogues",
    "compat",
)
STAGING = ".staging"
_INPUTS = "inputs.json"  # of the parts beside it
_PART = re.compile(r"\d{8}\.parquet")


def options_of(config_tree: ConfigDict) -> dict[str, Any]:
    """The task's options: its section with its switches, or `options`, a JSON object, for a task
    from outside.
    """
    # The package's tasks have one; `options` is for others.
    if config_tree.task in config_tree:  # a section of its own
        allowed = f"empty: options are below config.{config_tree.task}"
        checks.require_key(config_tree, "options", not config_tree.options, allowed)
        return registry.options_of(config_tree.to_dict())
    return registry.json_options(config_tree.options)


def _resolve(config_tree: ConfigDict) -> ConfigDict:
    """The config with the defaults that depend on other keys."""
    resolved = config_tree.copy_and_resolve_references()
    if resolved.reddit.reward_scale is None:
        resolved.reddit.reward_scale = reddit.scale_of(resolved.reddit.reward)
    return resolved


def _identity(config_tree: ConfigDict) -> list[str]:
    """The keys of the run's identity: of a task's section all but its server's."""
    keys = []
    in_sections = []
    for key in IDENTITY:
        if isinstance(config_tree[key], ConfigDict):
            in_sections += [
                f"{key}.{name}" for name in config_tree[key] if name not in registry.ADDRESSES
            ]
        else:
            keys.append(key)
    return keys + in_sections


def _count(config: CollectTextConfig, task: TextTask) -> int:
    """How many dialogues (or groups) are collected: of a finite kind all, unless the config asks
    for fewer.
    """
    available = task.count(config.kind)
    if available is None:
        return config.num_dialogues
    return min(config.num_dialogues or available, available)


def check(config_tree: ConfigDict, workdir: Path) -> None:
    config_tree = _resolve(config_tree)
    run_folder.check_identity(
        workdir, config_tree, _identity(config_tree), free=registry.FREE_OPTIONS
    )
    config = read_section(CollectTextConfig, config_tree)
    capacity.require_workers("workers", config.workers)
    task = registry.make(config.task, options_of(config_tree))
    task_files.require_size(task)
    task.check(config.kind, config.policy)
    if task.scored_by():
        from motif_jax.ilql.tasks import text_scores

        text_scores.check(task, plays=task.endless(config.kind))
    if (workdir / dialogue_files.DIALOGUES).exists() and not (workdir / "config.json").exists():
        raise UserError(
            f"{workdir} holds dialogues that were not collected here: choose another --workdir"
        )


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    config_tree = _resolve(config_tree)
    config = read_section(CollectTextConfig, config_tree)
    identity = _identity(config_tree)
    staging = workdir / STAGING
    meta = workdir / dialogue_files.META
    with (
        Interruption() as stop,
        run_folder.opened(workdir, config_tree, identity, registry.FREE_OPTIONS),
    ):
        # Written last (`collect`); a kill after it may have left the parts.
        if meta.exists():
            shutil.rmtree(staging, ignore_errors=True)
            print(
                f"{workdir} is complete: {_in_words(read_json(meta, 'remove it and collect again'))}"
            )
            return None
        task = registry.make(config.task, options_of(config_tree))
        try:
            options = task_files.prepare_files(
                config.task,
                task.options,
                config.kind,
                config.policy,
                workdir,
                config.seed,
                lambda: stop.requested,
            )
        except StoppedError:
            return EXIT_CODE
        # Again, of the options that name the files just made.
        task = registry.make(config.task, options)
        # Files that cannot be read raise their error here, before a worker process starts.
        task.stream(config.kind, config.policy)
        plan = DialoguePlan(
            task=config.task,
            options=options,
            kind=config.kind,
            policy=config.policy,
            seed=config.seed,
            count=_count(config, task),
            size=task.dialogues_per_draw(config.kind),
            folder=str(staging),
            patient=task.patient,
        )
        # The settings behind the data, with options that name the files made for it;
        # `registry.options_of` reads them.
        plain = run_folder.as_plain(config_tree)
        settings = {key: plain[key] for key in IDENTITY}
        if config.task in config_tree:
            settings[config.task] = options
        else:
            settings["options"] = json.dumps(options)
        about = {
            "origin": "motif_jax collect_text",
            "facts": task.facts(config.kind),
            "config": settings,
        }
        finish = functools.partial(task.finish, config.kind)
        # With digests of files, so that parts of two contents do not become one collection.
        inputs = registry.drawn_from(task)
        if not collect(plan, workdir, about, config.workers, stop, finish, inputs):
            return EXIT_CODE
        print(_in_words(read_json(meta, "collect again")))
        return None


def _in_words(meta: dict[str, Any]) -> str:
    if not meta["dialogues"]:
        return "no dialogues: none of the episodes led to one; more config.num_dialogues, or another config.seed, may have some"
    facts = "".join(
        f"; {name.replace('_', ' ')} {value:,}" for name, value in meta["facts"].items()
    )
    failures = meta.get("failed_requests", 0)
    failed = f"; {failures:,} requests to the server failed and were made again" if failures else ""
    return (
        f"{meta['dialogues']:,} dialogues, {meta['actions']:,} actions, "
        f"mean return {meta['mean_return']:.3f} +- {meta['standard_error']:.3f} (standard error){facts}{failed}"
    )


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
        dialogue_files.write(
            _part_path(self._plan.folder, request), [dialogues], {"failures": failures}
        )
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
    failures = sum(
        dialogue_files.about(_part_path(staging, part)).get("failures", 0) for part in done
    )

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
    parts = totals.counted(
        dialogue_files.read_parquet(_part_path(staging, part)) for part in range(plan.parts)
    )
    dialogue_files.write(folder / dialogue_files.DIALOGUES, parts, about)
    meta = {**about, **totals.summary(), "failed_requests": failures}
    # Before dialogues.json, with which `collect_text` takes the folder for complete.
    finish(folder)
    atomic_write_json(
        folder / dialogue_files.META,
        {**meta, "digest": digests.of_file(folder / dialogue_files.DIALOGUES)},
    )
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
