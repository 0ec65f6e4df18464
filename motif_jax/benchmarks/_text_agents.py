"""Shared parts of the benchmarks of text agents: a fresh agent with three trunks and values."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from motif_jax.ilql.agent.agent_decoder import AgentDecoder
from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.lm import config as configs
from motif_jax.lm.model import LanguageModel


class FreshAgent(NamedTuple):
    """An agent with new parameters; those of the target differ from those of values, as in the
    middle of a training.
    """

    decoder: AgentDecoder
    params: Any


def make(chosen: ConfigDict, vocabulary: int, positions: int, seed: int) -> FreshAgent:
    """An agent with two Qs, and a trunk each for policy, values and target; without an option
    `heads` these are 64 wide as in GPT-2.
    """
    shape = {
        "model_type": "gpt2", "vocab_size": vocabulary, "n_positions": positions, "n_embd": chosen.width,
        "n_layer": chosen.layers, "n_head": chosen.get("heads") or max(1, chosen.width // 64),
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
    }  # fmt: skip
    settings = dataclasses.replace(configs.parse(shape), initializer=0.1)
    dtype = jnp.dtype(chosen.dtype)
    network = TextAgentNetwork(LanguageModel(settings, dtype), Design(), dtype)
    params = network.init(jax.random.key(seed))
    other = network.init(jax.random.key(seed + 1))
    params["target_heads"] = other["target_heads"]
    params["trunks"]["target"] = other["trunks"]["target"]
    return FreshAgent(AgentDecoder(network), params)
