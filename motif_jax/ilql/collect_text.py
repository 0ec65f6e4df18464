"""Collect text: dialogues of a text task as one parquet file, resumably, by any number of worker
processes.
"""

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
from motif_jax.ilql.config import CollectTextConfig
from motif_jax.ilql.dialogues import collected as dialogues
from motif_jax.ilql.dialogues import text_sources
from motif_jax.ilql.tasks import registry
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.ilql.tasks.reddit import task as reddit
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
        checks.positive(config, "num_dialogues")
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
    checks.choice(config, "kind", task.kinds)
    text_sources.require_size(task)
    task.check(config.kind, config.policy)
    if task.scored_by():
        from motif_jax.ilql.tasks import text_scores

        text_scores.check(task, plays=task.endless(config.kind))
    if not config.num_dialogues:
        _count(config, task)
    if (workdir / dialogues.DIALOGUES).exists() and not (workdir / "config.json").exists():
        raise UserError(
            f"{workdir} holds dialogues that were not collected here: choose another --workdir"
        )


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    config_tree = _resolve(config_tree)
    config = read_section(CollectTextConfig, config_tree)
    identity = _identity(config_tree)
    staging = workdir / dialogues.STAGING
    meta = workdir / dialogues.META
    with (
        Interruption() as stop,
        run_folder.opened(workdir, config_tree, identity, registry.FREE_OPTIONS),
    ):
        # Written last (`collected.collect`); a kill after it may have left the parts.
        if meta.exists():
            shutil.rmtree(staging, ignore_errors=True)
            print(
                f"{workdir} is complete: {_in_words(read_json(meta, 'remove it and collect again'))}"
            )
            return None
        task = registry.make(config.task, options_of(config_tree))
        try:
            options = text_sources.prepare(
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
        plan = dialogues.DialoguePlan(
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
        if not dialogues.collect(plan, workdir, about, config.workers, stop, finish, inputs):
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
