"""Measures scores of candidates after prompts: prompts a second against a row for every candidate with its prompt.

Both sides run in turns with the same weights. It takes a minute on CPU. On a GPU: `configs/benchmark.py:score_gpu`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, result
from motif_jax.benchmarks._language import Subject
from motif_jax.lm import scoring

GPU_SIZE = {"model": "flan_t5_large", "batch_size": 64, "dtype": "bfloat16"}
check = _language.check


def options() -> ConfigDict:
    """The model's shape, prompts at once, candidates and their tokens, `seconds` of each repeat and side."""
    return _language.options(model="flan_t5_small", batch_size=8, candidates=6, candidate_tokens=2)


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    subject = _language.subject(config)
    sides = {"shared": shared(subject)}
    if chosen.baseline:
        sides["rows"] = rows(subject)
    arguments = (subject.params, subject.prompt, subject.valid, subject.candidates)
    calls = {name: _language.compiled(side, *arguments) for name, side in sides.items()}
    first = _language.first_step_seconds(calls["shared"])
    totals = {name: np.asarray(call()) for name, call in calls.items()}
    rates = _language.rates(config, calls, chosen.batch_size)
    apart = None
    if chosen.baseline:
        apart = float(np.abs(totals["shared"] - totals["rows"]).max() / np.abs(totals["rows"]).max())
    seconds = chosen.batch_size / float(np.median(rates["shared"]))
    return result(
        config,
        "prompts/s",
        rates["shared"],
        "every candidate with its prompt a row of its own",
        rates.get("rows"),
        first_step_seconds=first,
        scores_apart=apart,
        **_language.peak_share(config, _language.product_flops(sides["shared"], *arguments), seconds),
    )


def shared(subject: Subject) -> Callable[..., jax.Array]:
    """A function (params, prompt, valid, candidates) -> log-probabilities float32 [B, N] that runs each prompt once."""

    def call(params: Any, prompt: jax.Array, valid: jax.Array, candidates: jax.Array) -> jax.Array:
        is_token = jnp.ones(candidates.shape, bool)
        return scoring.score(subject.model, params, prompt, valid, candidates, is_token).total

    return call


def rows(subject: Subject) -> Callable[..., jax.Array]:
    """As `shared`, with a row for every candidate with its prompt."""
    score = shared(subject)

    def call(params: Any, prompt: jax.Array, valid: jax.Array, candidates: jax.Array) -> jax.Array:
        batch, count, length = candidates.shape
        prompts = jnp.repeat(prompt, count, axis=0)
        masks = jnp.repeat(valid, count, axis=0)
        scores = score(params, prompts, masks, candidates.reshape(batch * count, 1, length))
        return scores.reshape(batch, count)

    return call
