"""Measures one thing against its yardstick and prints one JSON line last.

    python -m motif_jax.launch --config=configs/benchmark.py:NAME

NAME is a file of motif_jax/benchmarks/ (`--config=configs/benchmark.py` alone lists them). Every
benchmark measures both its sides in one run, in turns unless it says otherwise; `--config.repeats`
says how often. Settings of single benchmarks are keys below `options`. Seconds to a few minutes
each. Their sizes are those of a CPU; NAME_gpu has those of a GPU: `train_gpu`, `learner_gpu` and
`inference_gpu` batches of 16,384 steps in bfloat16 with 80 environments a worker; `score_gpu`,
`generate_gpu`, `language_update_gpu`, `judge_gpu` and `text_train_gpu` larger models in bfloat16.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax import benchmarks


def get_config(variant: str | None = None) -> ConfigDict:
    name = variant or ""
    gpu_size = benchmarks.gpu_size(name.removesuffix("_gpu")) if name.endswith("_gpu") else None
    name = name if gpu_size is None else name.removesuffix("_gpu")
    options = ConfigDict()
    if name in benchmarks.names():
        options = benchmarks.module(name).options()
    options.update(gpu_size or {})
    return ConfigDict(
        {
            "stage": "benchmark",
            "name": name,
            "seed": 1,
            "repeats": 5,
            "options": options,
        }
    )
