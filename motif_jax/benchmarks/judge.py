"""Measures a language model in this process as the judge: questions a second with the prompts' shared start run once.

Baseline: each prompt runs from its first token.

Both sides run in turns with the same weights and give the same answers. With `options.model`, a folder or a hub name, it is a
published model; else one of a made-up shape. With `options.torch` the other side is plain torch, where it is installed.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax import lm
from motif_jax.benchmarks import _language, _torch_judge, result
from motif_jax.core import config as checks
from motif_jax.lm import config as configs
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.next_token import NextToken

# Shapes of published models that people judge with, and one for tests.
SHAPES: dict[str, dict[str, Any]] = {
    "smollm2_135m": {
        "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True,
        "max_position_embeddings": 8192,
    },
    "qwen2_0.5b": {
        "model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True,
        "max_position_embeddings": 32768,
    },
    "tiny": {
        "model_type": "llama", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True, "max_position_embeddings": 512,
    },
}  # fmt: skip
GPU_SIZE = {"shape": "qwen2_0.5b", "dtype": "bfloat16", "questions": 512, "batch": 128}
# Tokens of the verdicts; any would give the same rate.
_VERDICTS = ([3], [4], [5])


def options() -> ConfigDict:
    """A model or a shape, numbers of tokens that all prompts share and that differ, questions of a repeat, questions at a time.

    `dtype` is that of weights and computation, as `config.model.dtype` of the annotator.
    """
    return ConfigDict(
        {
            "model": "",
            "shape": "smollm2_135m",
            "dtype": "float32",
            "shared_tokens": 86,
            "own_tokens": 32,
            "questions": 32,
            "batch": 32,
            "baseline": True,
            "torch": False,
            "seconds": 3.0,
        }
    )


def check(config: ConfigDict) -> None:
    """Raises UserError for an unknown shape, or for torch where it is not installed."""
    if not config.options.model:
        checks.choice(config, "options.shape", tuple(SHAPES))
    if config.options.torch:
        _torch_judge.torch()


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    model, params = _model(config)
    rng = np.random.default_rng(config.seed)
    shared = rng.integers(6, 64, chosen.shared_tokens).tolist()
    rows = [shared + rng.integers(6, 64, chosen.own_tokens).tolist() for _ in range(chosen.questions)]
    other = None
    if chosen.torch:
        other = _torch_judge.TorchJudge(model.config, params, _VERDICTS, shared, chosen.batch).answering(rows)
    calls = {"shared": answering(NextToken(model, params, _VERDICTS, shared, chosen.batch), rows)}
    first = _language.first_step_seconds(calls["shared"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    baseline_name = "the same model with each prompt run from its first token"
    if other is not None:
        baseline_name = "the same weights in plain torch, with what prompts share run once"
        calls["other"] = other
    elif chosen.baseline:
        calls["other"] = answering(NextToken(model, params, _VERDICTS, (), chosen.batch), rows)
    answers = {name: call() for name, call in calls.items()}
    apart = float(np.abs(answers["shared"] - answers["other"]).max()) if "other" in calls else None
    rates = _language.rates(config, calls, chosen.questions)
    return result(
        config,
        "questions/s",
        rates["shared"],
        baseline_name,
        rates.get("other"),
        first_step_seconds=first,
        log_probabilities_apart=apart,
        weight_bytes=sum(leaf.nbytes for leaf in jax.tree.leaves(params)),
        peak_bytes_with_loading=peak,
        threads=_language.usable_cores(),
    )


def _model(config: ConfigDict) -> tuple[LanguageModel, Any]:
    """The model of the options, and its weights: published or fresh ones."""
    chosen = config.options
    dtype = jnp.dtype(chosen.dtype)
    if chosen.model:
        loaded = lm.load(chosen.model, dtype)
        return loaded.model, loaded.params
    model = LanguageModel(configs.parse(SHAPES[chosen.shape]), dtype)
    fresh = jax.jit(lambda key: jax.tree.map(lambda leaf: leaf.astype(dtype), model.init(key)))
    return model, fresh(jax.random.key(config.seed))


def answering(scorer: NextToken, rows: list[list[int]]) -> Callable[[], np.ndarray]:
    """A call that answers all rows: log-probabilities float32 [questions, verdicts]."""

    def call() -> np.ndarray:
        answers = np.zeros((len(rows), len(_VERDICTS)), np.float32)
        for positions, log_probs in scorer(rows):
            answers[positions] = log_probs
        return answers

    return call
