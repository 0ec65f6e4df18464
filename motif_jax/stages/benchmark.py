"""Runs one benchmark and prints its JSON line last."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax import benchmarks
from motif_jax.support import config as checks

NEEDS_WORKDIR = False


def check(config: ConfigDict, workdir: Path | None) -> None:
    """Raises UserError for a benchmark that does not exist or a bad number of repeats."""
    del workdir
    checks.choice(config, "name", benchmarks.names())
    checks.positive(config, "repeats")


def run(config: ConfigDict, workdir: Path | None) -> None:
    """Runs `config.name` and prints one JSON line."""
    del workdir
    line = importlib.import_module(f"motif_jax.benchmarks.{config.name}").run(config)
    print(json.dumps(line))
