"""The stage `benchmark`, and its benchmarks, one a file; each measures one value and its baseline
in the same run.

A module has `options() -> ConfigDict` (settings and defaults) and `run(config) -> dict` (the fields
of its JSON line, see `result`). It may have GPU_SIZE, the options of its variant for a GPU.
"""

from __future__ import annotations

import importlib
import json
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

from motif_jax.core.errors import UserError
from motif_jax.core.files import finite

NEEDS_WORKDIR = False


def check(config: ConfigDict, workdir: Path | None) -> None:
    del workdir
    if config.name not in names():
        # Not by the key: it comes with the options of its benchmark, which the variant sets.
        raise UserError(
            f"--config=configs/benchmark.py:{config.name or 'NAME'}: NAME must be one of {', '.join(names())}"
        )


def run(config: ConfigDict, workdir: Path | None) -> None:
    """Runs the benchmark and prints its JSON line last; null stands for a number that is infinite
    or was not measured.
    """
    del workdir
    line = module(config.name).run(config)
    print(json.dumps(finite(line), allow_nan=False))


def names() -> list[str]:
    """Names of all benchmarks: those of this folder's files without an underscore."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def gpu_size(name: str) -> dict[str, Any] | None:
    """Options of a benchmark's GPU variant that differ from the defaults; None without such a
    variant.
    """
    return getattr(module(name), "GPU_SIZE", None) if name in names() else None


def module(name: str) -> ModuleType:
    return importlib.import_module(f"motif_jax.benchmarks.{name}")


def machine_description() -> dict[str, Any]:
    """The processor of this machine and, where jax is in use, its devices."""
    file = Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    models = re.findall(r"(?m)^model name.*?: (.*)$", text)
    processor = models[0] if models else platform.processor() or platform.machine()
    machine: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "processor": processor}
    # Not imported here: the engine's benchmarks run without jax.
    jax = sys.modules.get("jax")
    if jax is not None:
        machine["devices"] = [device.device_kind for device in jax.local_devices()]
        machine["jax"] = jax.__version__
    return machine


def result(
    config: ConfigDict,
    unit: str,
    values: Sequence[float],
    baseline_name: str,
    baseline_values: Sequence[float] | None,
    **more: Any,
) -> dict[str, Any]:
    """The JSON line of a benchmark: medians over the repeats of both sides, their ratio, and the
    ratios' range.

    Args:
      values: one of each repeat.
      baseline_name: words for the user.
      baseline_values: one of each repeat; None where the baseline was not measured, and the line
          has no ratio.
      more: further fields.
    """
    comparison: dict[str, Any] = {}
    baseline: dict[str, Any] = {"what": baseline_name, "value": None}
    if baseline_values is not None:
        comparison = compare(values, baseline_values)
        baseline["value"] = comparison.pop("value")
    return {
        "benchmark": config.name,
        "value": statistics.median(values),
        "unit": unit,
        "baseline": baseline,
        **comparison,
        "machine": machine_description(),
        "settings": config.options.to_dict(),
        **more,
    }


def print_early(config: ConfigDict, unit: str, values: Sequence[float], **more: Any) -> None:
    """Prints to stderr what a benchmark has measured by now, so that a run that is killed before
    its line has it.

    The arguments are those of `result`. The line is a part of that line; a later one replaces it.
    """
    line = {
        "benchmark": config.name,
        "value": statistics.median(values),
        "unit": unit,
        "settings": config.options.to_dict(),
        **more,
    }
    print(json.dumps(finite(line), allow_nan=False), file=sys.stderr, flush=True)


def compare(values: Sequence[float], baseline_values: Sequence[float]) -> dict[str, Any]:
    """The median of a baseline, and the ratio of the medians and the range of the ratios of
    `values` to it.
    """
    ratios = [value / other for value, other in zip(values, baseline_values, strict=True)]
    median = statistics.median(baseline_values)
    spread = {"min": min(ratios), "max": max(ratios)}
    return {"value": median, "ratio": statistics.median(values) / median, "spread": spread}
