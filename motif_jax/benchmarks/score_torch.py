"""Scores of candidates against transformers, which encodes each prompt once too; same weights, as many threads.

    python -m motif_jax.launch --config=configs/benchmark.py:score_torch

transformers runs in a process of `options.python` (.venv-vllm, which launch/setup_vllm_cpu.sh makes); the two sides work in turns, each
waiting while the other works. A minute on CPU. On a GPU (`configs/benchmark.py:score_torch_gpu`) that environment needs torch for CUDA.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, result, score

GPU_SIZE = score.GPU_SIZE


def options() -> ConfigDict:
    """Settings: those of `score`, and the Python that has torch and transformers."""
    return ConfigDict({**score.options().to_dict(), "python": _language.PYTHON})


def check(config: ConfigDict) -> None:
    """Raises UserError for what cannot be measured."""
    _language.check(config, "t5")


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line."""
    # Two processes share a GPU: by default the first would take nearly all of its memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.4")
    subject, chosen = _language.subject(config), config.options
    call = functools.partial(
        jax.jit(score.shared(subject)), subject.params, subject.prompt, subject.candidates
    )
    with _language.Transformers(chosen.python, subject, chosen.model, chosen.dtype) as theirs:
        expected = np.asarray(theirs.ask(do="score", seconds=0)["result"])
        rates = _language.in_turns(
            {
                "ours": _language.rate(call, chosen.batch_size, chosen.seconds),
                "theirs": theirs.rate(chosen.batch_size, chosen.seconds, do="score"),
            },
            config.repeats,
        )
    return result(
        "score_torch",
        "prompts/s",
        rates["ours"],
        "transformers, each prompt encoded once",
        rates["theirs"],
        chosen.to_dict(),
        scores_apart=_language.relative(np.asarray(call()), expected),
        threads=_language.threads(),
    )
