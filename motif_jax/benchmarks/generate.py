"""Measures generation of text: tokens a second with and without a cache.

Both are greedy and include the prompts' time. Baseline: the whole text runs again for every token,
measured on a few tokens a repeat, with texts of the middle length. Both sides run in turns. It
takes two minutes on CPU. On a GPU: `configs/benchmark.py:generate_gpu`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, print_early, result
from motif_jax.benchmarks._language import Subject
from motif_jax.lm import generation
from motif_jax.lm.generation import Limits, Sampling
from motif_jax.lm.scoring import last_state

GPU_SIZE = {"model": "gpt2_medium", "batch_size": 64, "dtype": "bfloat16"}


def options() -> ConfigDict:
    return _language.options(model="gpt2", batch_size=8, new_tokens=64)


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    subject = _language.subject(config)
    arguments = (subject.params, subject.prompt, subject.valid)
    write = _language.compiled(_generation(subject, chosen.new_tokens), *arguments)
    first = _language.first_step_seconds(write)

    middle_length = jnp.pad(subject.prompt, ((0, 0), (0, max(1, chosen.new_tokens // 2))))
    write_one = functools.partial(jax.jit(_next_token(subject)), subject.params, middle_length)
    count = chosen.batch_size * chosen.new_tokens
    # The baseline makes one token a call, on texts of the mean length while tokens are added.
    sides = {"ours": _language.rate(write, count, chosen.seconds)}
    if chosen.baseline:
        sides["no cache"] = _language.rate(write_one, chosen.batch_size, chosen.seconds)
    rates = _language.alternate(sides, config.repeats)
    print_early(config, "tokens/s", rates["ours"], first_step_seconds=first)
    seconds = count / float(np.median(rates["ours"]))
    return result(
        config,
        "tokens/s",
        rates["ours"],
        "no cache",
        rates.get("no cache"),
        first_step_seconds=first,
        threads=_language.usable_cores(),
        **_language.peak_share(config, _flops(subject, chosen.new_tokens), seconds),
    )


def _generation(subject: Subject, new_tokens: int) -> Any:
    """A function (params, prompt, valid) -> tokens int32 [B, M]; there is no stop token."""
    model = subject.model
    limits = Limits(new_tokens, (-1,))
    sampling = Sampling(greedy=True)

    def call(params: Any, prompt: jax.Array, valid: jax.Array) -> jax.Array:
        key = jax.random.key(0)
        return generation.generate(model, params, prompt, valid, key, limits, sampling).tokens[:, 0]

    return call


def _next_token(subject: Subject) -> Any:
    """A function (params, text int32 [B, T]) -> the next token int32 [B], without a cache."""
    model = subject.model

    def decoder(params: Any, text: jax.Array) -> jax.Array:
        valid = jnp.ones(text.shape, bool)
        states, _ = model.prefill(params, text, valid)
        return jnp.argmax(model.logits(params, last_state(states, valid).after), axis=-1)

    def encoder_decoder(params: Any, text: jax.Array) -> jax.Array:
        prompt = text[:, : subject.prompt.shape[1]]
        _, encoded_prompt = model.prefill(params, prompt, jnp.ones(prompt.shape, bool))
        answer = text[:, None, prompt.shape[1] :]
        states, _ = model.extend(params, encoded_prompt, answer, jnp.ones(answer.shape, bool))
        return jnp.argmax(model.logits(params, states.after[:, 0, -1]), axis=-1)

    return encoder_decoder if model.config.encoder_layers else decoder


def _flops(subject: Subject, new_tokens: int) -> float:
    """Floating-point operations of the generation in matrix products."""
    arguments = (subject.params, subject.prompt, subject.valid)
    prompts = _language.product_flops(subject.model.prefill, *arguments)
    # A loop is counted as one step of it.
    with_one_token = _language.product_flops(_generation(subject, new_tokens), *arguments)
    return prompts + new_tokens * (with_one_token - prompts)
