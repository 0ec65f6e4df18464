"""Reads a checkpoint's generation_config.json: the tokens that end a text, and the settings of
drawing that are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json, regular_file

FILE = "generation_config.json"
# Entries that replace those of config.json, as in transformers' `generate`.
_USED = ("eos_token_id", "decoder_start_token_id")
# Entries without an effect on the texts: origins, caches, the padding, and lengths, which a caller
# always gives.
_WITHOUT_EFFECT = (
    "_from_model_config",
    "transformers_version",
    "pad_token_id",
    "bos_token_id",
    "use_cache",
    "cache_implementation",
    "max_length",
    "max_new_tokens",
    "return_dict_in_generate",
    "output_scores",
    "output_attentions",
    "output_hidden_states",
    "trust_remote_code",
)


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


def unused(folder: str | Path) -> str | None:
    """One line about the settings of drawing that the file has and nothing here applies; None
    without any.
    """
    values: Mapping[str, Any] = read(folder)
    # Temperature, top_p and others: a person may expect the model's own settings of drawing.
    names = [name for name in values if name not in (*_USED, *_WITHOUT_EFFECT)]
    if not names:
        return None
    listed = ", ".join(f"{name}={values[name]}" for name in names)
    return f"{Path(folder) / FILE}: {listed} are not applied: config.sampling, config.max_new_tokens and config.stops decide"
