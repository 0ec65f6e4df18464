"""Tiny agents of text tasks as `train_text` leaves them, with fresh numbers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.ilql.tasks import registry
from motif_jax.lm.config import parse
from motif_jax.lm.model import LanguageModel

# Not one program: the trunks of all agents of a config share that of the model.
initialiser = functools.cache(
    lambda config, design: TextAgentNetwork(LanguageModel(config), design).init
)


def write(
    folder: Path,
    design: Design | None = None,
    method: str = "ilql",
    task: str = "wordle",
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Writes an agent of one small layer, of two heads; returns the folder, as a run's."""
    options = {"num_words": 20} if options is None and task == "wordle" else options or {}
    tokenizer = registry.make(task, options).tokenizer()
    sizes = {
        "vocab_size": tokenizer.size,
        "n_embd": 16,
        "n_layer": 1,
        "n_head": 2,
        "n_positions": 96,
    }
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": tokenizer.delimiters.pad}
    config = parse({"model_type": "gpt2", **sizes, **ends})
    design = design or Design()
    network = TextAgentNetwork(LanguageModel(config), design)
    params = jax.tree.map(np.asarray, initialiser(config, design)(jax.random.key(seed)))
    folder.mkdir(parents=True, exist_ok=True)
    settings_of_run = {"longest_action": 6, **(settings or {})}
    agent_folder.write(
        folder / "agent", network, params, method, settings_of_run, task, options, tokenizer
    )
    return folder
