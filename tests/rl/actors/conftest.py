"""A time of pools that a test sets."""

from __future__ import annotations

import pytest

from motif_jax.rl.actors import pool
from tests.rl.actors.pool_time import PoolTime


@pytest.fixture
def pool_time(monkeypatch: pytest.MonkeyPatch) -> PoolTime:
    """The time of pools, whose clocks follow it over any leap."""
    time = PoolTime()
    monkeypatch.setattr(pool, "time", time)
    monkeypatch.setattr(pool, "MAX_ROUND_SECONDS", float("inf"))
    return time
