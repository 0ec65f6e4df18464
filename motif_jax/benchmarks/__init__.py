"""Benchmarks, one in each file; each measures one value and its baseline in the same run.

A module has `options() -> ConfigDict` (settings and defaults) and `run(config) -> dict` (the fields of its JSON line, see
`result`). It may have `check(config)` for further checks, and GPU_SIZE, the options of its variant for a GPU.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import platform
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import config as checks

_MAY_BE_ZERO = ("advantage_weight", "warmup_seconds")  # all other numeric options must be positive


def names() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def gpu_size(name: str) -> dict[str, Any] | None:
    """Options of a benchmark's GPU variant that differ from the defaults; None without such a variant."""
    return getattr(module(name), "GPU_SIZE", None) if name in names() else None


def module(name: str) -> ModuleType:
    return importlib.import_module(f"motif_jax.benchmarks.{name}")


def check(config: ConfigDict) -> None:
    options = config.options
    for key, value in options.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            checks.positive(config, f"options.{key}", allow_zero=key in _MAY_BE_ZERO)
    if "dtype" in options:
        checks.choice(config, "options.dtype", ("float32", "bfloat16"))
    if "envs_per_worker" in options:
        envs, groups = options.envs_per_worker, options.get("groups_per_worker", 2)
        allowed = f"a multiple of {groups}: a worker has so many groups"
        checks.require(envs % groups == 0, "options.envs_per_worker", envs, allowed)
    if {"batch_size", "rollout"} <= set(options):
        batch, rollout = options.batch_size, options.rollout
        allowed = f"a multiple of config.options.rollout={rollout}"
        checks.require(batch % rollout == 0, "options.batch_size", batch, allowed)
    if own := getattr(module(config.name), "check", None):
        own(config)


def _machine() -> dict[str, Any]:
    file = Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    models = re.findall(r"(?m)^model name.*?: (.*)$", text)
    processor = models[0] if models else platform.processor() or platform.machine()
    found: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "processor": processor}
    if (jax := sys.modules.get("jax")) is not None:
        found["devices"] = [device.device_kind for device in jax.local_devices()]
        found["jax"] = jax.__version__
    return found


def result(
    config: ConfigDict,
    unit: str,
    values: Sequence[float],
    what: str,
    others: Sequence[float] | None,
    **more: Any,
) -> dict[str, Any]:
    """The JSON line of a benchmark: medians over the repeats of both sides, their ratio, and the ratios' range.

    `others` are the baseline's; None where it was not measured, and the line has no ratio.
    """
    compared: dict[str, Any] = {}
    baseline: dict[str, Any] = {"what": what, "value": None}
    if others is not None:
        compared = beside(values, others)
        baseline["value"] = compared.pop("value")
    return {
        "benchmark": config.name,
        "value": statistics.median(values),
        "unit": unit,
        "baseline": baseline,
        **compared,
        "machine": _machine(),
        "settings": config.options.to_dict(),
        **more,
    }


def beside(values: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """A second baseline: its median, and the ratios of `values` to it."""
    ratios = [value / other for value, other in zip(values, others, strict=True)]
    median = statistics.median(others)
    spread = {"min": min(ratios), "max": max(ratios)}
    return {"value": median, "ratio": statistics.median(values) / median, "spread": spread}
