"""The source of a training's dialogues: the task, its options with the tokenizer, the files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.core import config as checks
from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.agent_folder import TOKENIZER
from motif_jax.ilql.config import InitialParameters, TextConfig
from motif_jax.ilql.dialogues import files
from motif_jax.ilql.tasks import own_turns, registry
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.lm.text import fetch

# What `collect_text` writes beside its dialogues.
_META = "dialogues.json"


# The task of a user's own dialogues.
RECORDED = "dialogues"


class DialogueSource(NamedTuple):
    """The source of dialogues, before anything is read; task and options are of
    `ilql.tasks.registry.make`.
    """

    task: str
    options: Mapping[str, Any]
    path: Path | None  # None: dialogues are drawn from the task's stream
    held_out: Path | None  # None: a share of those in `path`
    # gives it the text scorer that it needs
    attach: Callable[[TextTask], TextTask] = lambda task: task


def source_of(config: TextConfig) -> DialogueSource:
    """The source of a run's dialogues. Data of `collect_text` have their task's options, which
    `config.options` overrides.
    """
    path = files.find(config.data, "data") if config.data else None
    held_out = files.find(config.held_out.data, "held_out.data") if config.held_out.data else None
    if held_out is not None and path is None:
        raise UserError(
            f"config.held_out.data={config.held_out.data}: must be None without config.data: held-out dialogues come from the stream"
        )
    # Later ones win: options of the collected data, of the model, of the initial run, and the
    # user's.
    user_options = registry.json_options(config.options)
    options: dict[str, Any] = {}
    # Beside files of other names, dialogues.json may be anything, such as other dialogues.
    is_collected = path is not None and path.name == files.NAME
    if path is not None and is_collected and (path.parent / _META).is_file():
        options = _collected_options(config, path.parent)
    if config.task == RECORDED:
        if path is not None:
            options["data"] = str(path)
        if config.network.checkpoint and not user_options.get("tokenizer"):
            options["tokenizer"] = _tokenizer_of(config.network.checkpoint)
    options |= _initial_tokenizer(config.initial)
    options = registry.overlaid(config.task, options, user_options)
    if config.task == RECORDED:
        if "turns" in user_options:
            raise UserError("config.options: must be without turns: --config.turns says which")
        options["turns"] = _turns_of(config, options)
    elif config.turns == own_turns.OWN:
        raise UserError(
            f"config.turns={config.turns}: must be {own_turns.AUTO} or {own_turns.NEW} with config.task={config.task}: only the task {RECORDED} "
            "has a chat model's own turns"
        )
    return DialogueSource(config.task, options, path, held_out)


def _tokenizer_of(checkpoint: str) -> str:
    """The folder of a language model with a tokenizer; UserError without one."""
    folder = fetch(checkpoint, "network.checkpoint")
    if not (folder / TOKENIZER).is_file():
        raise UserError(
            f"config.network.checkpoint={checkpoint}: must be a language model with {TOKENIZER}"
        )
    return str(folder)


def _turns_of(config: TextConfig, options: Mapping[str, Any]) -> str:
    """What `config.turns` comes to: the turns of the run that training begins from, or those that
    the tokenizer has.
    """
    for key, run in dataclasses.asdict(config.initial).items():
        if run:
            about = agent_folder.describe(run, f"initial.{key}")
            turns: str = about["options"].get("turns", own_turns.NEW)
            allowed = f"{own_turns.AUTO}, or {turns} as in config.initial.{key}={run}"
            checks.require_key(config, "turns", config.turns in (own_turns.AUTO, turns), allowed)
            return turns
    return own_turns.choose(config.turns, options.get("tokenizer", "")).turns


def turns_in_words(config: TextConfig, source: DialogueSource) -> str:
    """What surrounds the utterances of the task `dialogues`, for the first line of a run; '' for
    other tasks.
    """
    if config.task != RECORDED:
        return ""
    if source.options["turns"] == own_turns.OWN:
        return "turns: the model's own, by its chat template"
    reason = ""
    if not any(dataclasses.asdict(config.initial).values()):
        reason = own_turns.choose(config.turns, source.options.get("tokenizer", "")).reason
    because = f" ({reason})" if reason else ""
    return f"turns: between delimiters of dialogues{because}"


def _collected_options(config: TextConfig, folder: Path) -> dict[str, Any]:
    """The task's options that `collect_text` recorded in `folder`."""
    meta = folder / _META
    collected = read_json(meta, "collect it again").get("config", {})
    if not isinstance(collected, dict):
        raise UserError(f"{meta} is damaged (config is not an object): collect it again")
    entry_points.note_source(meta, collected)
    if config.task == RECORDED and "task" in collected:
        collected = {}  # dialogues of any task may be learned as plain ones
    if collected.get("task", config.task) != config.task:
        raise UserError(
            f"config.data={config.data}: are dialogues of the task {collected['task']}, config.task is {config.task}"
        )
    try:
        options = dict(registry.options_of(collected)) if "task" in collected else {}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            f"{meta} is damaged (config has no options of the task {config.task}): collect it again, or take that file out"
        ) from None
    if "task" in collected:
        options = registry.located(config.task, options, folder)
    # Learned with the data, wherever these have been moved to.
    if (folder / TOKENIZER).is_file():
        options["tokenizer"] = str(folder)
    return options


def _initial_tokenizer(initial: InitialParameters) -> dict[str, Any]:
    """The option that names the tokenizer file of the initial run, if it has one."""
    for key, run in dataclasses.asdict(initial).items():
        if run:
            folder = agent_folder.find(run, f"initial.{key}")
            if (folder / TOKENIZER).is_file():
                return {"tokenizer": str(folder)}
    return {}
