"""A clock of the test, for benchmarks whose parts are stand-ins or tiny."""

from __future__ import annotations

import itertools

import pytest

from motif_jax import benchmarks
from motif_jax.benchmarks import _agents
from tests.benchmarks.stand_ins import GrowingProcess, ProcessTable
from tests.clocks import TickingClock

HERE = "motif_jax.benchmarks"
TIMED = ("_agents", "actors", "annotate", "learning", "reward", "text_train", "train")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock whose readings are further and further apart, so that no two measurements take the
    same time.
    """
    time = TickingClock(itertools.accumulate(itertools.count(0.25, 0.25)))
    for name in TIMED:
        monkeypatch.setattr(f"{HERE}.{name}.time", time)
    peaks = itertools.count(1000.0, 100.0)
    monkeypatch.setattr(_agents, "matrix_product_rate", lambda dtype: next(peaks))
    monkeypatch.setattr(_agents, "network_flops", lambda training: (10.0, 35.0))
    monkeypatch.setattr(benchmarks, "machine_description", dict)
    processes = ProcessTable(GrowingProcess())
    for name in ("train", "actors"):
        monkeypatch.setattr(f"{HERE}.{name}.psutil", processes)
