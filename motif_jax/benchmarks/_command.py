"""Runs one benchmark and prints its JSON line last; null stands for a number that is infinite or
was not measured.
"""

from __future__ import annotations

import json
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax import benchmarks
from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import finite

NEEDS_WORKDIR = False


def check(config: ConfigDict, workdir: Path | None) -> None:
    del workdir
    names = benchmarks.names()
    if config.name not in names:
        # Not by the key: it comes with the options of its benchmark, which the variant sets.
        raise UserError(
            f"--config=configs/benchmark.py:{config.name or 'NAME'}: NAME must be one of {', '.join(names)}"
        )
    checks.positive(config, "repeats")
    benchmarks.check(config)


def run(config: ConfigDict, workdir: Path | None) -> None:
    del workdir
    line = benchmarks.module(config.name).run(config)
    print(json.dumps(finite(line), allow_nan=False))
