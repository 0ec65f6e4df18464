"""The JSON line of a benchmark."""

from __future__ import annotations

from typing import Any

from motif_jax import benchmarks
from tests.reward_fixtures import load_config


def line_of(name: str, **options: Any) -> dict[str, Any]:
    """The line that a benchmark prints with these options, of three repeats."""
    config = load_config("benchmark", name, {"repeats": 3, "seed": 7})
    config.options.update(options)
    line: dict[str, Any] = benchmarks.module(config.name).run(config)
    return line
