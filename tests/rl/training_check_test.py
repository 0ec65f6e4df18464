"""What `train_agent` refuses or remarks on before any work: memory, values that it cannot use."""

from __future__ import annotations

from pathlib import Path

import pytest
from ml_collections import ConfigDict

from motif_jax.core import capacity
from motif_jax.core.errors import UserError
from motif_jax.rl import settings, train_agent
from motif_jax.rl.config import agent_config
from tests.play.agent_runs import recall_config
from tests.reward_fixtures import load_config


def test_memory_for_slots_is_checked_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = recall_config(devices__actor="0,1", serial=True)
    parts = settings.actors_configs(settings.resolved(agent_config(slots)), 2)
    bytes_of_slots = sum(part.layout().size for part in parts)
    require_bytes(
        slots,
        bytes_of_slots,
        "trajectory slots need .* are left: lower config",
        tmp_path,
        monkeypatch,
    )


def test_the_penalty_needs_a_network_without_memory(tmp_path: Path) -> None:
    changes = {
        "algorithm.name": "ppo",
        "algorithm.kl": {"coefficient": 0.1},
        "network.core": "none",
    }
    train_agent.check(load_config("train_agent", "symbolic", changes), tmp_path)


def test_memory_for_games_is_checked_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    games = recall_config(actors__envs_per_worker=20)
    bytes_of_games = 2 * (capacity.WORKER_BYTES + 19 * capacity.GAME_BYTES)
    require_bytes(
        games, bytes_of_games, "config.actors.workers=2: .* of memory", tmp_path, monkeypatch
    )


def require_bytes(
    config: ConfigDict, needed: int, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asserts that a config is accepted with `needed` bytes of memory, and refused with one
    less.
    """
    monkeypatch.setattr(capacity, "available_memory", lambda: needed)
    train_agent.check(config, folder)
    monkeypatch.setattr(capacity, "available_memory", lambda: needed - 1)
    with pytest.raises(UserError, match=message):
        train_agent.check(config, folder)
