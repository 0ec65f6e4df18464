"""One file a benchmark; each measures one thing against its yardstick in the same run.

A benchmark module has `options() -> ConfigDict` (settings and defaults) and `run(config) -> dict` (the fields of its JSON line,
see `result`); it may have `check(config)` for what `check` here leaves out.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.support import config as checks

# Options, of any benchmark, that must be above zero.
_POSITIVE = frozenset(
    """batch_size candidate_tokens candidates envs_per_worker games new_tokens prompt_tokens questions rollout seconds steps turn
    workers""".split()
)
# What a GPU needs to be busy, in place of the sizes of a CPU, and the benchmarks of trainings that it means something for; others have
# a GPU_SIZE of their own.
GPU_SIZE = {"batch_size": 16_384, "envs_per_worker": 80, "dtype": "bfloat16"}
GPU_NAMES = ("inference", "learner", "train")


def names() -> list[str]:
    """The benchmarks that there are."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def gpu_size(name: str) -> dict[str, Any] | None:
    """The options of a benchmark's variant for a GPU that differ from the others; None where it has no such variant."""
    if name in GPU_NAMES:
        return GPU_SIZE
    return (
        getattr(importlib.import_module(f"motif_jax.benchmarks.{name}"), "GPU_SIZE", None)
        if name in names()
        else None
    )


def check(config: ConfigDict) -> None:
    """Raises UserError for options that cannot be measured."""
    options = config.options
    for key in sorted(_POSITIVE & set(options)):
        checks.positive(config, f"options.{key}")
    if "warmup_seconds" in options:
        checks.positive(config, "options.warmup_seconds", allow_zero=True)
    if "envs_per_worker" in options:
        envs = options.envs_per_worker
        checks.require(
            envs % 2 == 0, "options.envs_per_worker", envs, "an even number: a worker has two groups"
        )
    if {"batch_size", "rollout"} <= set(options):
        batch, rollout = options.batch_size, options.rollout
        allowed = f"a multiple of config.options.rollout={rollout}"
        checks.require(batch % rollout == 0, "options.batch_size", batch, allowed)
    module = importlib.import_module(f"motif_jax.benchmarks.{config.name}")
    if hasattr(module, "check"):
        module.check(config)


def machine() -> dict[str, Any]:
    """Processor, cores, and the accelerators if jax is loaded."""
    import sys

    found: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "processor": _processor()}
    jax = sys.modules.get("jax")
    if jax is not None:
        found["devices"] = [device.device_kind for device in jax.local_devices()]
        found["jax"] = jax.__version__
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def result(
    benchmark: str,
    unit: str,
    values: Sequence[float],
    baseline: str,
    baseline_values: Sequence[float],
    settings: dict[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """The JSON line of a benchmark: medians over the repeats, their ratio, and the ratios' range.

    Args:
      values: one measurement a repeat.
      baseline: what the yardstick is.
      baseline_values: one measurement of it a repeat, alternating with `values` where possible.
      settings: everything that was chosen.
      **more: further fields.
    """
    value, base = statistics.median(values), statistics.median(baseline_values)
    ratios = [v / b for v, b in zip(values, baseline_values, strict=True)]
    return {
        "benchmark": benchmark,
        "value": value,
        "unit": unit,
        "baseline": {"what": baseline, "value": base},
        "ratio": value / base,
        "spread": {"min": min(ratios), "max": max(ratios)},
        "machine": machine(),
        "settings": settings,
        **more,
    }


def beside(values: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """A second yardstick: its median, and the ratios of `values` to it."""
    ratios = [value / other for value, other in zip(values, others, strict=True)]
    median = statistics.median(others)
    spread = {"min": min(ratios), "max": max(ratios)}
    return {"value": median, "ratio": statistics.median(values) / median, "spread": spread}
