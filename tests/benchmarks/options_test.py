"""An unknown benchmark is refused; the printed line is strict JSON."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import sys
from pathlib import Path

import jax
import pytest

from motif_jax import benchmarks
from motif_jax.benchmarks import train
from motif_jax.core.errors import UserError
from tests.reward_fixtures import load_config


def test_an_unknown_benchmark_is_refused() -> None:
    benchmarks.check(load_config("benchmark", "train"), None)
    with pytest.raises(UserError, match="NAME must be one of actors, annotate"):
        benchmarks.check(load_config("benchmark", "train", {"name": "trian"}), None)


def test_a_line_has_medians_and_the_machine() -> None:
    config = load_config("benchmark", "generate", {"options.seconds": 4.0})
    line = benchmarks.result(config, "m/s", [3.0, 9.0, 5.0], "a snail", [1.0, 2.0, 4.0], name="Ada")
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "devices": ["cpu"] * 4,
        "jax": jax.__version__,
    }
    assert line == {
        "benchmark": "generate",
        "value": 5.0,
        "unit": "m/s",
        "baseline": {"what": "a snail", "value": 2.0},
        "ratio": 2.5,
        "spread": {"min": 1.25, "max": 4.5},
        "machine": {**machine, "processor": [*models, platform.processor()][0]},
        "settings": config.options.to_dict(),
        "name": "Ada",
    }


def test_a_machine_without_cpuinfo_and_jax_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks, "Path", lambda name: Path("/nowhere"))
    monkeypatch.setattr(benchmarks.platform, "processor", lambda: "")
    monkeypatch.delitem(sys.modules, "jax")

    cores = len(os.sched_getaffinity(0))
    assert benchmarks.machine_description() == {"cores": cores, "processor": platform.machine()}


def no_constants(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def test_numbers_that_are_not_finite_are_printed_as_null(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    same = {"value": 1.5, "name": "Infinity"}
    parts = {"link": math.inf, "rates": [2, math.nan]}
    monkeypatch.setattr(
        train, "run", lambda config: same | {"parts": parts, "sweep": (1.0, -math.inf)}
    )
    benchmarks.run(load_config("benchmark", "train"), None)
    line = json.loads(capsys.readouterr().out, parse_constant=no_constants)
    assert line == same | {"parts": {"link": None, "rates": [2, None]}, "sweep": [1.0, None]}
