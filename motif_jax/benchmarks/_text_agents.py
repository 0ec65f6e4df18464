"""Shared parts of the benchmarks of text agents: a fresh agent with three trunks and values."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.language import config as configs
from motif_jax.language.model import LanguageModel
from motif_jax.language.text_agent import Design, TextAgentNetwork
from motif_jax.rollouts.agent_decoder import AgentDecoder


class Made(NamedTuple):
    """An agent and its parameters, whose targets differ from the online ones."""

    decoder: AgentDecoder
    params: Any


def make(
    width: int, layers: int, vocabulary: int, positions: int, dtype: str, seed: int, heads: int | None = None
) -> Made:
    """An agent with two Qs and a trunk each for policy, values and target; `heads` of attention, None: heads of width 64 as in GPT-2."""
    shape = {
        "model_type": "gpt2", "vocab_size": vocabulary, "n_positions": positions, "n_embd": width, "n_layer": layers,
        "n_head": heads or max(1, width // 64), "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
    }  # fmt: skip
    settings = dataclasses.replace(configs.parse(shape), initializer=0.1)
    network = TextAgentNetwork(LanguageModel(settings, jnp.dtype(dtype)), Design(), jnp.dtype(dtype))
    params, other = (network.init(jax.random.key(seed + i)) for i in range(2))
    params["target_heads"], params["trunks"]["target"] = other["target_heads"], other["trunks"]["target"]
    return Made(AgentDecoder(network), params)
