"""Measures the memory of scores of candidates after prompts, beside transformers' T5 as GLAM's
released code uses it.

Each side scores the prompts of `score` in a process of its own, with the same weights; the other
computes in float32, as released. Values are peaks of resident memory, libraries and weights
included; the ratio is better where it is lower.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, _memory, _transformers_score
from motif_jax.lm import config as configs
from motif_jax.lm.model import LanguageModel


def options() -> ConfigDict:
    """The model's shape, prompts at once and their tokens, candidates and their tokens, and the
    dtype of our side.
    """
    return ConfigDict(
        {
            "model": "flan_t5_small",
            "dtype": "float32",
            "batch_size": 8,
            "prompt_tokens": 360,
            "candidates": 6,
            "candidate_tokens": 2,
            "torch": True,
        }
    )


def check(config: ConfigDict) -> None:
    """Raises UserError as `score` does."""
    _language.check(config)
    if config.options.torch:
        _transformers_score.require(_language.SHAPES[config.options.model])


def run(config: ConfigDict) -> dict[str, Any]:
    chosen = config.options
    shape = _language.SHAPES[chosen.model]
    settings = configs.parse(shape)
    rng = np.random.default_rng(config.seed)

    def tokens(*sizes: int) -> list[Any]:
        return rng.integers(2, settings.vocab_size - 1, (chosen.batch_size, *sizes)).tolist()

    values = {
        "dtype": chosen.dtype,
        "prompt": tokens(chosen.prompt_tokens),
        "candidates": tokens(chosen.candidates, chosen.candidate_tokens),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Questions and weights lie in files, so that both processes read the same.
        (folder / "input.json").write_text(json.dumps(values))
        params = LanguageModel(settings).init(jax.random.key(config.seed))
        _transformers_score.write_checkpoint(folder, shape, settings, params)
        other = "transformers_scores" if chosen.torch else None
        return _memory.line(config, folder, "scores", "transformers' T5 in float32", other)
