"""Measures steered generation: tokens a second of a greedy agent with three trunks and double Q,
with and without caches.

Prompts have 200 tokens, whose time is included, and 40 are generated. Baseline: a compiled loop
that runs all three trunks over the whole text for every token, and the heads at its end. Both
generate the same tokens (`tokens_equal`). It takes a minute on two cores with `--config.repeats=3`.
`:text_generation_gpu` has GPT-2 small's shape and vocabulary in bfloat16.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, _text_agents, result
from motif_jax.benchmarks._text_agents import FreshAgent
from motif_jax.ilql.agent import decoding as decodings
from motif_jax.ilql.agent.decoding import Decoding
from motif_jax.ilql.agent.text_session import TextSession
from motif_jax.ilql.dialogues.items import Delimiters
from motif_jax.lm.blocks import States

GPU_SIZE = {"width": 768, "layers": 12, "vocabulary": 50_264, "dtype": "bfloat16"}
_PAD = 0
_MARKS = Delimiters(_PAD, 1, 2, 3, -1, 5)  # no token ends an action


def options() -> ConfigDict:
    """The agent's size, tokens of prompts and answers, texts at once, `seconds` of each repeat and
    side.
    """
    return ConfigDict(
        {
            "width": 128,
            "layers": 4,
            "vocabulary": 2_048,
            "dtype": "float32",
            "prompt_tokens": 200,
            "new_tokens": 40,
            "batch_size": 32,
            "advantage_weight": 8.0,
            "seconds": 3.0,
        }
    )


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    positions = chosen.prompt_tokens + chosen.new_tokens
    agent = _text_agents.make(chosen, chosen.vocabulary, positions, config.seed)
    decoding = Decoding("greedy", chosen.new_tokens, advantage_weight=chosen.advantage_weight)
    shape = (chosen.batch_size, chosen.prompt_tokens)
    prompts = np.random.default_rng(config.seed).integers(6, chosen.vocabulary, shape)
    ours = functools.partial(write_with_caches, agent, decoding, prompts)
    plain = functools.partial(
        make_plain_writer(agent, decoding), agent.params, jnp.asarray(prompts, jnp.int32)
    )
    # Compiles both sides, too.
    equal = float((ours() == np.asarray(plain())).mean())
    rates = _language.rates(
        config, {"ours": ours, "plain": plain}, chosen.batch_size * chosen.new_tokens
    )
    return result(
        config,
        "tokens/s",
        rates["ours"],
        "whole text again for every token",
        rates["plain"],
        tokens_equal=equal,
        threads=_language.usable_cores(),
    )


def write_with_caches(agent: FreshAgent, decoding: Decoding, prompts: np.ndarray) -> np.ndarray:
    """Generates with caches: tokens int32 [B, M]."""
    capacity = prompts.shape[1] + decoding.max_tokens + 56
    session = TextSession(
        agent.decoder, agent.params, len(prompts), decoding, _MARKS, capacity=capacity
    )
    session.read(prompts.tolist())
    keys = jax.random.split(jax.random.key(0), len(prompts))
    return session.write(keys, np.ones(len(prompts), bool)).tokens


def make_plain_writer(agent: FreshAgent, decoding: Decoding) -> Any:
    """A function (params, prompts int32 [B, T]) -> tokens int32 [B, M] that loops without
    caches.
    """
    decoder = agent.decoder
    network = decoder.network

    @jax.jit
    def call(params: Any, prompts: jax.Array) -> jax.Array:
        batch, length = prompts.shape
        text = jnp.concatenate(
            [prompts, jnp.zeros((batch, decoding.max_tokens), jnp.int32)], axis=1
        )
        trunks = network.design.roles.trees(params["trunks"])

        def write_token(count: jax.Array, text: jax.Array) -> jax.Array:
            """Adds a token after the prompt and `count` others."""
            valid = jnp.broadcast_to(jnp.arange(text.shape[1]) < length + count, text.shape)
            runs = [network.model.prefill(trunk, text, valid)[0] for trunk in trunks]
            # The newest token's states of each trunk, [B, width] each.
            ends = [States(*(part[:, length + count - 1] for part in run)) for run in runs]
            states = States(*(jnp.stack(parts) for parts in zip(*ends, strict=True)))
            token = decodings.steered(decoder.outputs(params, states), decoding, _PAD).argmax(-1)
            return text.at[:, length + count].set(token.astype(jnp.int32))

        return jax.lax.fori_loop(0, decoding.max_tokens, write_token, text)[:, length:]

    return call
