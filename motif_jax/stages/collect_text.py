"""Collect text: dialogues of a text task as one parquet file, resumably, by any number of worker processes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.collecting import dialogues
from motif_jax.envs.text import registry
from motif_jax.envs.text.contract import TextTask
from motif_jax.support import capacity, run_folder
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError
from motif_jax.support.files import FolderLock, read_json
from motif_jax.support.interruption import EXIT_CODE, Interruption

# Everything that decides what is drawn; only the number of workers may change.
IDENTITY = "task kind policy options wordle seed num_dialogues compat".split()


def options_of(config: ConfigDict) -> dict[str, Any]:
    """The task's options: its own section with its switches, or for one from outside what `options` holds.

    Raises:
      UserError: `options` is no JSON object, or is given where the task has a section.
    """
    if config.task in registry.names():
        checks.require(
            not config.options, "options", config.options, f"empty: options are below config.{config.task}"
        )
        prefix = f"{config.task}_"
        switches = {
            name.removeprefix(prefix): on for name, on in config.compat.items() if name.startswith(prefix)
        }
        return {**config[config.task].to_dict(), **switches}
    try:
        found = json.loads(config.options or "{}")
    except ValueError:
        found = None
    checks.require(isinstance(found, dict), "options", config.options, 'a JSON object such as {"words": 3}')
    return found


def _task(config: ConfigDict) -> TextTask:
    return registry.make(config.task, options_of(config))


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for a bad value, or a folder that holds something else."""
    run_folder.check_identity(workdir, config, IDENTITY)
    for key in ("num_dialogues", "workers"):
        checks.positive(config, key)
    capacity.require_workers("workers", config.workers)
    task = _task(config)
    checks.choice(config, "kind", task.kinds)
    task.check(config.kind, config.policy)
    if (workdir / dialogues.DIALOGUES).exists() and not (workdir / "config.json").exists():
        raise UserError(f"{workdir} holds dialogues that were not collected here: choose another --workdir")


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Draws what is missing; returns the exit code of an interrupted stage when it was asked to stop."""
    staging, meta = workdir / dialogues.STAGING, workdir / dialogues.META
    with FolderLock(workdir):
        run_folder.prepare(workdir, config, IDENTITY)
        if meta.exists():
            shutil.rmtree(staging, ignore_errors=True)
            print(f"{workdir} is whole: {_told(read_json(meta, 'remove it and collect anew'))}")
            return None
        task = _task(config)
        options = task.prepare(config.kind, config.policy, workdir)
        task = registry.make(config.task, options)
        # What cannot be read or drawn from is said here, before a process starts.
        task.stream(config.kind, config.policy)
        plan = dialogues.DialoguePlan(
            task=config.task,
            options=options,
            kind=config.kind,
            policy=config.policy,
            seed=config.seed,
            count=config.num_dialogues,
            size=task.at_a_time(config.kind),
            folder=str(staging),
        )
        plain = run_folder.as_plain(config)
        about = {
            "origin": "motif_jax collect_text",
            "config": {key: plain[key] for key in IDENTITY},
            "facts": task.facts(config.kind),
        }
        with Interruption() as stop:
            if not dialogues.collect(plan, workdir, about, config.workers, stop):
                return EXIT_CODE
        print(_told(read_json(meta, "collect anew")))
        return None


def _told(meta: dict[str, Any]) -> str:
    """What a dataset holds, in one line."""
    facts = "".join(f"; {name.replace('_', ' ')} {value:,}" for name, value in meta["facts"].items())
    return (
        f"{meta['dialogues']:,} dialogues, {meta['actions']:,} actions, "
        f"mean return {meta['mean_return']:.3f} +- {meta['standard_error']:.3f} (standard error){facts}"
    )
