"""Workers that the machine has no room for are refused before one is started."""

from __future__ import annotations

import importlib

import pytest

from motif_jax.support import capacity
from motif_jax.support.errors import UserError
from tests.reward_fixtures import load_config


@pytest.mark.parametrize("stage", ["collect", "evaluate"])
def test_workers_beyond_the_machine_are_refused(stage, tmp_path):
    config = load_config(stage, "smoke")
    config.workers = 10_000_000
    if stage == "evaluate":
        config.episodes = 10_000_000
    with pytest.raises(UserError, match=r"config.workers=10000000: .*(memory|processes)"):
        importlib.import_module(f"motif_jax.stages.{stage}").check(config, tmp_path)


def test_memory_and_processes_are_both_counted(monkeypatch):
    monkeypatch.setattr(capacity, "available_memory", lambda: 3 * capacity.WORKER_BYTES)
    monkeypatch.setattr(capacity, "available_processes", lambda: 2)
    capacity.require_workers("workers", 2)
    with pytest.raises(UserError, match=r"config.workers=3: must be at most 2"):
        capacity.require_workers("workers", 3)
    with pytest.raises(UserError, match=r"config.workers=4: .*128 MiB of memory, 96 MiB"):
        capacity.require_workers("workers", 4)
    with pytest.raises(UserError, match="of memory"):
        capacity.require_workers("workers", 2, games_each=20)
    monkeypatch.setattr(capacity, "available_memory", lambda: None)
    monkeypatch.setattr(capacity, "available_processes", lambda: None)
    capacity.require_workers("workers", 10**9)


def test_this_machine_has_room_for_one():
    assert (capacity.available_memory() or 1) > 0
    assert (capacity.available_processes() or 1) > 0
