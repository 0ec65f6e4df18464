"""One file a benchmark; each measures one thing against its yardstick in the same run.

A benchmark module has `options() -> ConfigDict` (its settings and their defaults) and `run(config) -> dict`
(the fields of its JSON line, see `result`).
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# What a GPU needs to be busy, in place of the sizes of a CPU, and the benchmarks that it means something for.
GPU_SIZE = {"batch_size": 16_384, "envs_per_worker": 80, "dtype": "bfloat16"}
GPU_NAMES = ("inference", "learner", "scale", "train")


def names() -> list[str]:
    """The benchmarks that there are."""
    return sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))


def machine() -> dict[str, Any]:
    """What the numbers were measured on: processor, cores, and the accelerators if jax is loaded."""
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
      benchmark: its name.
      unit: of both sides.
      values: one measurement a repeat.
      baseline: what the yardstick is.
      baseline_values: one measurement of it a repeat, alternating with `values`.
      settings: everything that was chosen.
      **more: whatever else is worth knowing.
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
