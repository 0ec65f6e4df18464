"""A time of pools that a test sets."""

from __future__ import annotations

import pytest

from motif_jax.rl.actors import processes
from tests.rl.actors.pool_time import PoolTime


@pytest.fixture
def pool_time(monkeypatch: pytest.MonkeyPatch) -> PoolTime:
    """The time of pools, whose clocks follow it over any leap."""
    time = PoolTime()
    monkeypatch.setattr(processes, "time", time)
    monkeypatch.setattr(processes, "MAX_ROUND_SECONDS", float("inf"))
    return time
