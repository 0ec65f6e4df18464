"""Measures scores of candidates after prompts: prompts a second against a row for every candidate
with its prompt.

Both sides run in turns with the same weights. It takes a minute on CPU. On a GPU:
`configs/benchmark.py:score_gpu`. Beside transformers' T5, as GLAM's released code uses it, it is
measured by docs/studies/score_beside_transformers.py.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, print_early, result
from motif_jax.benchmarks._language import Subject
from motif_jax.lm import scoring

GPU_SIZE = {"model": "flan_t5_large", "batch_size": 64, "dtype": "bfloat16"}


def options() -> ConfigDict:
    """The model's shape, prompts at once, candidates and their tokens, `seconds` of each repeat and
    side.
    """
    return _language.options(model="flan_t5_small", batch_size=8, candidates=6, candidate_tokens=2)


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    subject = _language.subject(config)
    arguments = (subject.params, subject.prompt, subject.valid, subject.candidates)
    calls: dict[str, Callable[[], Any]] = {
        "shared": _language.compiled(shared(subject), *arguments)
    }
    first = _language.first_step_seconds(calls["shared"])
    # Before the other side takes any memory.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if chosen.baseline:
        calls["other"] = _language.compiled(rows(subject), *arguments)
    totals = {name: np.asarray(call()) for name, call in calls.items()}
    rates = _language.rates(config, calls, chosen.batch_size)
    print_early(config, "prompts/s", rates["shared"], first_step_seconds=first)
    apart = None
    if "other" in totals:
        # Relative to the largest score of the other side.
        apart = float(
            np.abs(totals["shared"] - totals["other"]).max() / np.abs(totals["other"]).max()
        )
    seconds = chosen.batch_size / float(np.median(rates["shared"]))
    return result(
        config,
        "prompts/s",
        rates["shared"],
        "every candidate with its prompt a row of its own",
        rates.get("other"),
        first_step_seconds=first,
        scores_apart=apart,
        peak_bytes_with_compilation=peak,
        **_language.peak_share(
            config, _language.product_flops(shared(subject), *arguments), seconds
        ),
    )


def shared(subject: Subject) -> Callable[..., jax.Array]:
    """A function (params, prompt, valid, candidates) -> log-probabilities float32 [B, N] that runs
    each prompt once.
    """

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
