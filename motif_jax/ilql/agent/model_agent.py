"""Opens a decoder in a Hugging Face folder, or in a GGUF file, as an agent: a policy without
values; its tokenizer must have the delimiters of dialogues, or its chat template turns.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from motif_jax.core import tokenizer_files
from motif_jax.core.errors import UserError
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.agent_folder import SavedAgent
from motif_jax.ilql.agent.text_agent import POLICY, Design, TextAgentNetwork
from motif_jax.ilql.tasks import own_turns
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.ilql.tasks.file_tokens import FileTokenizer, delimiter_texts
from motif_jax.ilql.tasks.own_turns import FILE, NEW
from motif_jax.lm import config as configs
from motif_jax.lm import folder as folders
from motif_jax.lm import weights
from motif_jax.lm.gguf import folder as gguf_folder
from motif_jax.lm.model import LanguageModel

METHOD = "bc"


def is_model(folder: str | Path) -> bool:
    """Whether it is a model's folder or a GGUF file; a run folder of `train_text` is none."""
    path = gguf_folder.resolved(folder)
    names = (weights.SINGLE, weights.INDEX, gguf_folder.LINK)
    has_weights = any((path / name).is_file() for name in names)
    return has_weights and (path / FILE).is_file() and not (path / agent_folder.FILE).exists()


def describe(folder: str | Path, key: str) -> dict[str, Any]:
    """Describes an agent as `agent_folder.describe`; the task is None, since a decoder with turns
    or delimiters fits any task.
    """
    path = gguf_folder.resolved(folder)
    backend = tokenizer_files.read(path / FILE)
    missing = [text for text in delimiter_texts(backend) if backend.token_to_id(text) is None]
    if missing and turns_of(folder) == NEW:
        raise UserError(
            f"config.{key}={folder}: {FILE} must have the delimiters of dialogues as tokens, and lacks {', '.join(missing)}: "
            "add them before the model is trained on dialogues, or take a model whose chat template has turns that begin and end with special tokens"
        )
    settings = configs.read(path)
    configs.require_decoder(settings, "says")
    # A table may have more rows than there are tokens, never fewer.
    size = backend.get_vocab_size(with_added_tokens=True)
    if size > settings.vocab_size:
        raise UserError(
            f"config.{key}={folder}: {FILE} has {size:,} tokens, the model {settings.vocab_size:,}: must have one for each"
        )
    return {
        "method": METHOD,
        "task": None,
        "options": {},
        "design": dataclasses.asdict(Design(q="none")),
        "settings": {},
        "folder": str(folder),
    }


def turns_of(folder: str | Path) -> str:
    """What surrounds utterances: delimiters of dialogues where the tokenizer has them all, else the
    model's own turns if it can.
    """
    path = gguf_folder.resolved(folder)
    backend = tokenizer_files.read(path / FILE)
    if all(backend.token_to_id(text) is not None for text in delimiter_texts(backend)):
        return NEW
    return own_turns.choose(own_turns.AUTO, str(path)).turns


def network_of(folder: str | Path, dtype: Any = jnp.float32) -> TextAgentNetwork:
    """The network without its weights."""
    settings = weights.read_config(gguf_folder.resolved(folder))
    return TextAgentNetwork(
        LanguageModel(settings, jnp.dtype(dtype)), Design(q="none"), jnp.dtype(dtype)
    )


def load(
    folder: str | Path, key: str, name: str, task: TextTask, options: Any, dtype: Any = jnp.float32
) -> SavedAgent:
    """Reads an agent for `task`, made from `name` and `options`; UserError as in `describe`, or for
    damaged weights.
    """
    about = describe(folder, key)
    path = gguf_folder.resolved(folder)
    return SavedAgent(
        folder=path,
        network=network_of(folder, dtype),
        params={"trunks": {POLICY: folders.read(path).params}},
        method=METHOD,
        settings={},
        task_name=name,
        options=options,
        task=task,
        tokenizer=FileTokenizer(key, str(path), turns=turns_of(path)),
        about=about,
    )
