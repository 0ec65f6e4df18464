"""A clock of the test, for benchmarks whose parts are stand-ins or tiny."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from motif_jax import benchmarks
from motif_jax.benchmarks import _agents

HERE = "motif_jax.benchmarks"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock whose readings are further and further apart, so that no two measurements take the same time."""
    readings = itertools.accumulate(itertools.count(0.25, 0.25))
    names = ("perf_counter", "process_time", "monotonic")
    time = SimpleNamespace(**dict.fromkeys(names, lambda: next(readings)))
    timed = ("_agents", "actors", "annotate", "learning", "reward", "text_play", "text_train", "train")
    for name in timed:
        monkeypatch.setattr(f"{HERE}.{name}.time", time)
    peaks = itertools.count(1000.0, 100.0)
    monkeypatch.setattr(_agents, "matrix_product_rate", lambda dtype: next(peaks))
    monkeypatch.setattr(_agents, "network_flops", lambda training: (10.0, 35.0))
    monkeypatch.setattr(benchmarks, "_machine", dict)
    stand_in = process()
    for name in ("train", "actors"):
        monkeypatch.setattr(f"{HERE}.{name}.psutil", SimpleNamespace(Process=lambda *pid: stand_in))


def process() -> Any:
    """A process of 3 MB, which grows, and with itself as a child."""
    sizes = itertools.count(3_000_000, 300_000)
    stand_in = SimpleNamespace(memory_full_info=lambda: SimpleNamespace(pss=next(sizes)))
    stand_in.children = lambda recursive: [stand_in] * recursive
    return stand_in
