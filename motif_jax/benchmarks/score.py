"""Measures scores of candidates after prompts: prompts a second against a row for every candidate with its prompt.

    python -m motif_jax.launch --config=configs/benchmark.py:score

In `keys_per_row` of the JSON line the encoder runs once a prompt, but each candidate computes keys and values of the encoder's output
again, as libraries do that receive such an output. All sides run in turns with the same weights. It takes a minute and a half on CPU. On
a GPU: `configs/benchmark.py:score_gpu`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, beside, result
from motif_jax.benchmarks._language import Subject
from motif_jax.language import scoring
from motif_jax.language.sampling import token_log_probs

GPU_SIZE = {"model": "flan_t5_large", "batch_size": 64, "dtype": "bfloat16"}


def options() -> ConfigDict:
    """The model's shape, prompts at once, candidates and their tokens, `seconds` of each repeat and side."""
    return _language.options(model="flan_t5_small", batch_size=8, candidates=6, candidate_tokens=2)


def check(config: ConfigDict) -> None:
    """Raises UserError for options that cannot be measured."""
    _language.check(config, "t5")


def run(config: ConfigDict) -> dict[str, Any]:
    """The fields of the JSON line."""
    subject, chosen = _language.subject(config), config.options
    sides = {"shared": shared(subject), "rows": rows(subject), "keys_per_row": _keys_per_row(subject)}
    arguments = (subject.params, subject.prompt, subject.candidates)
    programs = {name: jax.jit(side) for name, side in sides.items()}
    calls = {name: functools.partial(program, *arguments) for name, program in programs.items()}
    totals = {name: np.asarray(call()) for name, call in calls.items()}
    rates = _language.rates(config, calls, chosen.batch_size)
    ours = float(np.median(rates["shared"]))
    return result(
        "score",
        "prompts/s",
        rates["shared"],
        "every candidate with its prompt a row of its own",
        rates["rows"],
        chosen.to_dict(),
        keys_per_row=beside(rates["shared"], rates["keys_per_row"]),
        scores_apart={
            name: _language.relative(totals["shared"], totals[name]) for name in ("rows", "keys_per_row")
        },
        **_language.peak_share(
            config, _language.product_flops(sides["shared"], *arguments), chosen.batch_size / ours
        ),
    )


def shared(subject: Subject) -> Callable[..., jax.Array]:
    """(params, prompt, candidates) -> log-probabilities float32 [B, N]; runs each prompt once."""

    def call(params: Any, prompt: jax.Array, candidates: jax.Array) -> jax.Array:
        valid, good = jnp.ones(prompt.shape, bool), jnp.ones(candidates.shape, bool)
        return scoring.score(subject.model, params, prompt, valid, candidates, good).total

    return call


def rows(subject: Subject) -> Callable[..., jax.Array]:
    """As `shared`, with a row for every candidate with its prompt."""
    score = shared(subject)

    def call(params: Any, prompt: jax.Array, candidates: jax.Array) -> jax.Array:
        batch, count, length = candidates.shape
        each = jnp.repeat(prompt, count, axis=0)
        return score(params, each, candidates.reshape(batch * count, 1, length)).reshape(batch, count)

    return call


def _keys_per_row(subject: Subject) -> Callable[..., jax.Array]:
    model = subject.model

    def call(params: Any, prompt: jax.Array, candidates: jax.Array) -> jax.Array:
        batch, count, length = candidates.shape
        states, one = model.prefill(params, prompt, jnp.ones(prompt.shape, bool))
        # The barrier hides from the compiler that the rows' keys are the same.
        repeated = jax.lax.optimization_barrier(jnp.repeat(states.after, count, axis=0))
        keys: Any = model.network.apply({"params": params}, repeated, method="encoded_keys")
        valid, lengths = (jnp.repeat(part, count, axis=0) for part in (one.valid, one.length))
        rows = candidates.reshape(batch * count, 1, length)
        start = jnp.full((*rows.shape[:2], 1), model.config.start_id, rows.dtype)
        inputs = jnp.concatenate([start, rows[..., :-1]], axis=-1)
        context = one._replace(keys=keys, valid=valid, length=lengths)
        after = model.extend(params, context, inputs, jnp.ones(inputs.shape, bool))[0].after
        chosen = token_log_probs(model.logits(params, after), rows)
        return chosen.sum(-1).reshape(batch, count)

    return call
