"""Text tasks by name; 'module:Class' names one from outside the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.core import digests, run_folder
from motif_jax.core.entry_points import Registry
from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json
from motif_jax.envs.spec import OBSERVED
from motif_jax.ilql.tasks.contract import TextTask

TASKS = Registry(
    "task",
    {
        "wordle": "motif_jax.ilql.tasks.wordle.task:Wordle",
        "visdial": "motif_jax.ilql.tasks.visdial.task:VisDial",
        "babyai_text": "motif_jax.ilql.tasks.babyai_text:BabyAITextTask",
        "reddit": "motif_jax.ilql.tasks.reddit.task:Reddit",
        "dialogues": "motif_jax.ilql.tasks.recorded:RecordedDialogues",
    },
    base="motif_jax.ilql.tasks.contract:TextTask",
)
# Options of a server's address and patience; a resumed run may change them.
ADDRESSES = ("url", "server", "timeout_seconds", "attempts")
# The same options inside the JSON of tasks from outside the package.
FREE_OPTIONS = tuple(f"options.{name}" for name in ADDRESSES)
# Options that do not change games: addresses, an agent's tokens, and the store of answers.
_NOT_DRAWN = (*ADDRESSES, *OBSERVED, "vocab_size", "turns", "store")


def names() -> tuple[str, ...]:
    """The tasks of the package."""
    return tuple(TASKS.parts)


def load(name: str) -> type[TextTask]:
    """The class of a task. Raises UserError: the name is unknown."""
    task: type[TextTask] = TASKS.load(name)
    return task


def options_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """A task's options in a config of `collect_text`, nested: its section and switches, or the JSON
    in `options`.
    """
    name = values["task"]
    if name not in values:  # a task without a section
        return dict(json.loads(values["options"] or "{}"))
    prefix = load(name).switches
    compat = values["compat"]
    # A task without switches has the prefix '', with which every name begins.
    switches = [key for key in compat if prefix and key.startswith(prefix)]
    return {**values[name], **{key.removeprefix(prefix): compat[key] for key in switches}}


def located(name: str, options: Mapping[str, Any], folder: str | Path) -> dict[str, Any]:
    """The options that a run in `folder` recorded, whose relative paths begin where it was started:
    for a caller in any folder, see `run_folder.stored_path`. Files that were made in `folder` are
    found if it has another name now.
    """
    task = load(name)
    recorded = dict(options)
    for key in task.paths:
        value = options.get(key)
        if not isinstance(value, str) or not value or value in task.lists:
            continue
        path = _located(value, Path(folder))
        if path is not None and path.resolve() != Path(value).resolve():
            recorded[key] = str(path)
    return recorded


def _located(value: str, folder: Path) -> Path | None:
    """The file or folder that a run in `folder` named so; None if there is none."""
    if "/" in value or Path(value).suffix:
        in_folder = folder / Path(value).name
        return in_folder if in_folder.exists() else run_folder.stored_path(folder, value)
    # A word such as "data" may also be the name of any folder above the run.
    path = run_folder.started_in(folder) / value
    return path if path.exists() else None


def overlaid(
    name: str, options: Mapping[str, Any], user_options: Mapping[str, Any]
) -> dict[str, Any]:
    """`options` overlaid with a user's own, without those that were valid only with an overridden
    value.
    """
    task = load(name)
    stale: set[str] = set()
    for key, value in user_options.items():
        # Another reward, say: scores of the former judge are not its own.
        if value != options.get(key, task.defaults.get(key)):
            stale.update(task.follow.get(key, ()))
    return {**{key: value for key, value in options.items() if key not in stale}, **user_options}


def drawn_from(task: TextTask) -> dict[str, Any]:
    """The inputs that determine the task's games, JSON-able: its options, with digests of files."""
    files = {
        key: digests.of_input(path) for key, path in task.files().items() if key not in _NOT_DRAWN
    }
    # A file counts by its content, not its path: "folder (comments_positive.csv)" is of `folder`.
    excluded = {*_NOT_DRAWN, *task.undrawn(), *(key.partition(" ")[0] for key in files)}
    plain = {key: value for key, value in task.options.items() if key not in excluded}
    return {**plain, **files}


def make(name: str, options: Mapping[str, Any]) -> TextTask:
    """Makes the task. Raises UserError: the name is unknown or an option is invalid."""
    return load(name)(options)


def json_options(text: str) -> dict[str, Any]:
    """Parses `config.options`; {} if it is empty. Raises UserError: no JSON object."""
    try:
        options = parse_json(text or "{}")
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise UserError(
            f"config.options={text}: must be a JSON object such as " + '{"num_words": 100}'
        )
    return options
