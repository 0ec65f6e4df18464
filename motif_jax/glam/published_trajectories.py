"""Reads and writes the published tool's trajectories, `.npy` arrays of prompts and actions, without
unpickling.

Source: github.com/flowersteam/Grounding_LLMs_with_online_RL (MIT), as facts. File k has the
contents of the files before it too. Files of LLM agents begin with empty objects and are rejected.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, load_array, new_array

# Names of files by an agent and by the bot.
NAME = "trajectories"
BOT_NAME = "bot_trajectories"
STATUS = "status.json"


def _read_array(path: Path) -> np.ndarray:
    try:
        return load_array(path)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except ValueError as error:
        if "pickle" in str(error).lower():
            raise UserError(
                f"{path} holds Python objects, which are not read since unpickling them could run code: "
                "save it as an array of texts (array.astype(str))"
            ) from None
        raise UserError(f"{path} is not an array of numpy ({error})") from None


def paths(folder: str | os.PathLike[str], name: str, number: int) -> tuple[Path, Path]:
    """The files of prompts and of actions."""
    prompts = Path(folder) / f"{name}_prompts_{number}.npy"
    actions = Path(folder) / f"{name}_actions_{number}.npy"
    return prompts, actions


def read(folder: str | os.PathLike[str], name: str, number: int) -> tuple[list[str], list[int]]:
    """Prompts, and the actions on them, flattened row by row. Raises UserError: a file is missing,
    or they differ in number.
    """
    prompts_path, actions_path = paths(folder, name, number)
    texts = _read_array(prompts_path)
    numbers = _read_array(actions_path)
    if texts.dtype.kind not in "US":
        raise UserError(f"{prompts_path} holds {texts.dtype}, not texts")
    if numbers.dtype.kind not in "iu":
        raise UserError(f"{actions_path} holds {numbers.dtype}, not numbers of actions")
    if texts.size != numbers.size:
        raise UserError(
            f"{prompts_path} has {texts.size} prompts, {actions_path} {numbers.size} actions: one for each is needed"
        )
    # Bytes name no encoding: they are read as UTF-8, and other bytes are replaced.
    if texts.dtype.kind == "S":
        texts = np.strings.decode(texts, "utf-8", "replace")
    return texts.ravel().tolist(), numbers.ravel().tolist()


def write(
    folder: str | os.PathLike[str],
    name: str,
    pairs: Iterable[tuple[str, int]],
    steps: int,
    longest: int,
) -> None:
    """Writes file 1 of prompts (texts of at most `longest` characters) and actions of `steps`
    steps, and status.json.
    """
    prompts_path, actions_path = paths(folder, name, 1)
    unfinished_prompts = prompts_path.with_name(f".{prompts_path.name}.tmp")
    unfinished_actions = actions_path.with_name(f".{actions_path.name}.tmp")
    # Mapped files: all prompts at once need not fit into memory.
    texts = new_array(unfinished_prompts, f"<U{max(1, longest)}", (steps,))
    numbers = new_array(unfinished_actions, np.int64, (steps,))
    for index, (prompt, action) in enumerate(pairs):
        texts[index] = prompt
        numbers[index] = action
    texts.flush()
    numbers.flush()
    # status.json comes last: the stage writes all files again where it is missing.
    os.replace(unfinished_prompts, prompts_path)
    os.replace(unfinished_actions, actions_path)
    atomic_write_json(Path(folder) / STATUS, {"k": 1, "nbr_frames": steps})
