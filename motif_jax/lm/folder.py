"""Reads and writes checkpoint folders in transformers' layout: config.json, weights, and the heads
that this package adds.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.core.files import atomic_write_json
from motif_jax.lm import config, heads, weights
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.heads import Heads

# Copied as they are.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)


class Folder(NamedTuple):
    """The contents of a folder: parameters are numpy arrays, heads are empty where there are
    none.
    """

    config: ModelConfig
    params: Any
    heads: Heads
    head_params: Any


def read(folder: str | Path) -> Folder:
    """Reads a folder; parameters become float32.

    Raises:
      UserError: a file is missing, its content is unknown, or files do not fit together.
    """
    settings = weights.read_config(folder)
    return Folder(settings, weights.load(folder, settings), *heads.load(folder, settings.width))


def write(
    folder: str | Path,
    settings: ModelConfig,
    params: Any,
    added: Heads | None = None,
    head_params: Any = None,
    tokenizer: str | Path | None = None,
) -> None:
    """Writes a folder that `read` and transformers open; config.json comes last, so that an
    incomplete folder is refused.

    `added` and `head_params` are heads and their parameters, `tokenizer` is a folder whose
    tokenizer is copied.

    Raises:
      UserError: config.json cannot express the model.
    """
    values = config.to_values(settings)
    folder = Path(folder)
    # While weights are replaced the folder has no config.json, without which it is no model.
    (folder / config.FILE).unlink(missing_ok=True)
    # That of another model would replace the end tokens that config.json has.
    (folder / config.GENERATION_FILE).unlink(missing_ok=True)
    weights.save(folder, params, settings)
    if added is not None and added.configs:
        heads.save(folder, added, head_params)
    if tokenizer is not None:
        for name in TOKENIZER_FILES:
            # A model that is written into its own folder keeps its files: `copyfile` refuses to
            # copy one onto itself.
            if (Path(tokenizer) / name).exists() and folder.resolve() != Path(tokenizer).resolve():
                shutil.copyfile(Path(tokenizer) / name, folder / name)
    atomic_write_json(folder / config.FILE, values)
