"""Gradients of scores: samples a second against every candidate with its prompt as a row of its own.

    python -m motif_jax.launch --config=configs/benchmark.py:score_update

A sample is a prompt with its candidates, of which one is to become likelier: the loss is the cross-entropy of a softmax over their
log-probabilities. Both sides alternate, with the same weights and loss; how far their gradients are apart stands in the line. Two minutes
on CPU. On a GPU: `configs/benchmark.py:score_update_gpu`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, result, score

GPU_SIZE = {**score.GPU_SIZE, "batch_size": 16}


def options() -> ConfigDict:
    """Settings: those of `score`, fewer prompts at a time."""
    return ConfigDict({**score.options().to_dict(), "batch_size": 2})


def check(config: ConfigDict) -> None:
    """Raises UserError for what cannot be measured."""
    _language.check(config, "t5")


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line."""
    subject, chosen = _language.subject(config), config.options
    arguments = (subject.params, subject.prompt, subject.candidates)
    sides = {"shared": _gradient(score.shared(subject)), "rows": _gradient(score.rows(subject))}
    calls = {name: functools.partial(jax.jit(side), *arguments) for name, side in sides.items()}
    apart = _language.relative(*(call() for call in calls.values()))
    rates = _language.in_turns(
        {name: _language.rate(call, chosen.batch_size, chosen.seconds) for name, call in calls.items()},
        config.repeats,
    )
    ours = float(np.median(rates["shared"]))
    return result(
        "score_update",
        "samples/s",
        rates["shared"],
        "every candidate with its prompt a row of its own",
        rates["rows"],
        chosen.to_dict(),
        gradients_apart=apart,
        **_language.peak_share(
            config, _language.product_flops(sides["shared"], *arguments), chosen.batch_size / ours
        ),
    )


def _gradient(totals: Callable[..., jax.Array]) -> Callable[..., Any]:
    def loss(params: Any, prompt: jax.Array, candidates: jax.Array) -> jax.Array:
        return -jax.nn.log_softmax(totals(params, prompt, candidates))[:, 0].mean()

    return jax.grad(loss)
