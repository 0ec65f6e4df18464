"""Reads a checkpoint's generation_config.json: the tokens that end and start a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json, regular_file

FILE = "generation_config.json"
# Entries that replace those of config.json, as in transformers' `generate`.
_USED = ("eos_token_id", "decoder_start_token_id")


def read(folder: str | Path) -> dict[str, Any]:
    """The entries of generation_config.json without those that are null; {} where the folder has no
    such file.

    Raises UserError: the file cannot be read.
    """
    path = Path(folder) / FILE
    try:
        with open(path, "rb", opener=regular_file) as file:
            values = parse_json(file.read(), dict)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    return {name: value for name, value in values.items() if value is not None}


def special_tokens(folder: str | Path) -> dict[str, Any]:
    """The special tokens of generation_config.json, which replace those of config.json."""
    values = read(folder)
    return {name: values[name] for name in _USED if name in values}
