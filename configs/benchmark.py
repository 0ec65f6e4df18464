"""Measures one thing against its yardstick and prints one JSON line last.

    python -m motif_jax.launch --config=configs/benchmark.py:NAME

NAME is a file of motif_jax/benchmarks/ (`--config=configs/benchmark.py` alone lists them). Every benchmark
alternates its two sides in one run; `--config.repeats` says how often. Settings of single benchmarks are keys
below `options`. Seconds to a few minutes each, on CPU or GPU as they are.
"""

from __future__ import annotations

import importlib

from ml_collections import ConfigDict

from motif_jax import benchmarks


def get_config(variant: str | None = None) -> ConfigDict:
    name = variant or ""
    options = ConfigDict()
    if name in benchmarks.names():
        options = importlib.import_module(f"motif_jax.benchmarks.{name}").options()
    return ConfigDict(
        {
            "stage": "benchmark",
            "name": name,
            "seed": 1,
            "repeats": 5,
            "options": options,
        }
    )
