"""Collect text: dialogues of a text task as one parquet file, resumably, by any number of worker processes."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import capacity, run_folder
from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json
from motif_jax.core.interruption import EXIT_CODE, Interruption, StoppedError
from motif_jax.ilql.dialogues import collected as dialogues
from motif_jax.ilql.dialogues import text_sources
from motif_jax.ilql.tasks import registry
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.ilql.tasks.reddit import task as reddit

# Everything that decides what is drawn, but for where servers are; only the number of workers may change besides.
IDENTITY = "task kind policy options wordle visdial reddit babyai_text seed num_dialogues compat".split()


def options_of(config: ConfigDict) -> dict[str, Any]:
    """The task's options: its section with its switches, or `options`, a JSON object, for a task from outside."""
    if config.task in config:  # a section of its own
        allowed = f"empty: options are below config.{config.task}"
        checks.require_key(config, "options", not config.options, allowed)
        return registry.options_of(config.to_dict())
    return registry.json_options(config.options)


def _resolved(config: ConfigDict) -> ConfigDict:
    found = config.copy_and_resolve_references()
    if found.reddit.reward_scale is None:
        found.reddit.reward_scale = reddit.scale_of(found.reddit.reward)
    return found


def _identity(config: ConfigDict) -> list[str]:
    sections = [key for key in IDENTITY if isinstance(config[key], ConfigDict)]
    inside = [f"{key}.{name}" for key in sections for name in config[key] if name not in registry.ADDRESSES]
    return [*(key for key in IDENTITY if key not in sections), *inside]


def _count(config: ConfigDict, task: TextTask) -> int:
    there = task.count(config.kind)
    if there is None:
        checks.positive(config, "num_dialogues")
        return config.num_dialogues
    return min(config.num_dialogues or there, there)


def check(config: ConfigDict, workdir: Path) -> None:
    config = _resolved(config)
    run_folder.check_identity(workdir, config, _identity(config), free=registry.FREE_OPTIONS)
    capacity.require_workers("workers", config.workers)
    task = registry.make(config.task, options_of(config))
    checks.choice(config, "kind", task.kinds)
    text_sources.require_size(task)
    task.check(config.kind, config.policy)
    if task.scored_by():
        from motif_jax.ilql.tasks import text_scores

        text_scores.check(task, plays=task.endless(config.kind))
    if not config.num_dialogues:
        _count(config, task)
    if (workdir / dialogues.DIALOGUES).exists() and not (workdir / "config.json").exists():
        raise UserError(f"{workdir} holds dialogues that were not collected here: choose another --workdir")


def run(config: ConfigDict, workdir: Path) -> int | None:
    config = _resolved(config)
    staging, meta = workdir / dialogues.STAGING, workdir / dialogues.META
    with Interruption() as stop, run_folder.opened(workdir, config, _identity(config), registry.FREE_OPTIONS):
        if meta.exists():
            shutil.rmtree(staging, ignore_errors=True)
            print(f"{workdir} is complete: {_in_words(read_json(meta, 'remove it and collect again'))}")
            return None
        task = registry.make(config.task, options_of(config))
        given = (config.task, task.options, config.kind, config.policy, workdir, config.seed)
        try:
            options = text_sources.prepare(*given, lambda: stop.requested)
        except StoppedError:
            return EXIT_CODE
        task = registry.make(config.task, options)
        # What cannot be read or drawn from is said here, before a process starts.
        task.stream(config.kind, config.policy)
        amount = _count(config, task), task.at_a_time(config.kind)
        source = config.task, options, config.kind, config.policy, config.seed
        plan = dialogues.DialoguePlan(*source, *amount, str(staging), task.patient)
        about = {"origin": "motif_jax collect_text", "facts": task.facts(config.kind)}
        # What decided the data, with options that name the files made for it; `registry.options_of` reads it.
        plain = run_folder.as_plain(config)
        own = {config.task: options} if config.task in config else {"options": json.dumps(options)}
        about["config"] = {**{key: plain[key] for key in IDENTITY}, **own}
        finish = functools.partial(task.finish, config.kind)
        if not dialogues.collect(plan, workdir, about, config.workers, stop, finish):
            return EXIT_CODE
        print(_in_words(read_json(meta, "collect again")))
        return None


def _in_words(meta: dict[str, Any]) -> str:
    facts = "".join(f"; {name.replace('_', ' ')} {value:,}" for name, value in meta["facts"].items())
    failures = meta.get("failed_requests", 0)
    failed = f"; {failures:,} requests to the server failed and were made again" if failures else ""
    return (
        f"{meta['dialogues']:,} dialogues, {meta['actions']:,} actions, "
        f"mean return {meta['mean_return']:.3f} +- {meta['standard_error']:.3f} (standard error){facts}{failed}"
    )
