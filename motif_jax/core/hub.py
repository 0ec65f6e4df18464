"""Rewards, agents and models from a Hugging Face hub: hf://OWNER/NAME[@REVISION][/PATH] where a
folder or file is asked for.

A hub's content is untrusted: only data files are fetched, no code and no pickles. What a fetched
config names outside the package is refused until the user's command trusts it (`entry_points`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from motif_jax.core.errors import UserError

_FORM = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([^/@]+))?(?:/(.+))?")
MODEL_FILES = ("*.json", "*.safetensors", "chat_template.jinja")
# Files of rewards and agents: `*` matches folders, too.
_FILES = (*MODEL_FILES, "*.jsonl", "*.npy", "checkpoints/*", "*/checkpoints/*")
# Left out where a pattern above would take them, as `checkpoints/*` does.
_CODE = ("*.py", "*.pkl", "*.pickle", "*.bin", "*.pt", "*.pth")
_REWARD = "reward.safetensors"  # of export:reward


def is_named(path: Any) -> bool:
    """Whether `path` names something on a hub."""
    return isinstance(path, str) and path.startswith("hf://")


def local(path: Any, key: str = "", previous: Any = None) -> Any:
    """The local copy of hf://OWNER/NAME[@REVISION][/PATH]; anything else unchanged.

    A repository with the file of `export:reward` and no checkpoints stands for that file. Without a
    revision in the name, the commit of `previous`, the resumed run's local copy, is kept. Errors
    name the config's `key`. Raises UserError: the hub has no such repository or revision, or cannot
    be reached.
    """
    if not is_named(path):
        return path
    subject = f"config.{key}={path}" if key else path
    form = _FORM.fullmatch(path)
    inside = Path((form and form.group(3)) or "")
    # No path may lead out of the local copy.
    if form is None or inside.is_absolute() or ".." in inside.parts:
        raise UserError(f"{subject}: must be hf://OWNER/NAME[@REVISION][/PATH]")
    name, revision, subpath = form.groups()
    if revision is None and isinstance(previous, str):
        snapshot_path = (
            rf"/models--{re.escape(name.replace('/', '--'))}/snapshots/([0-9a-f]{{40}})(/|$)"
        )
        previous_snapshot = re.search(snapshot_path, previous)
        revision = previous_snapshot and previous_snapshot.group(1)
    # Repositories of GGUF files have the same model a dozen times, packed in a dozen ways.
    files = (subpath,) if subpath and subpath.endswith(".gguf") else _FILES
    folder = snapshot(name, revision, subject, files)
    is_reward = (
        not subpath and (folder / _REWARD).is_file() and not (folder / "checkpoints").is_dir()
    )
    return str(folder / (_REWARD if is_reward else subpath or ""))


def snapshot(name: str, revision: str | None, subject: str, files: Sequence[str]) -> Path:
    """The folder of the local copy of a repository's `files` (patterns); errors as of `local` begin
    with `subject`.
    """
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=list(files), ignore_patterns=list(_CODE)
        )
    # Errors of several libraries. A misspelt folder is looked for here, too, as a repository.
    except Exception as error:
        raise UserError(f"{subject}: {error}") from error
    return Path(folder)
