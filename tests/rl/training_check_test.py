"""What `train_agent` refuses or remarks on before any work: memory, values that it cannot use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def test_remembered_actions_that_fill_the_memory_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(capacity, "available_memory", lambda: 1_000_000_000)
    config = recall_config(serial=True, environment__max_episode_steps=1_000_000_000)
    with pytest.raises(UserError, match=r"slots need .*: lower config\.environment\.max_episode"):
        train_agent.check(config, tmp_path)


@pytest.mark.parametrize(
    ("name", "variant", "changes", "message"),
    [
        (
            "train_agent",
            "symbolic",
            {"algorithm.name": "ppo", "algorithm.kl": {"coefficient": 0.1}},
            r"kl\.coefficient=0\.1: must be 0 with a network that has a memory",
        ),
        (
            "train_agent",
            "laptop",
            {"compat.crop_row_offset": True},
            r"network\.encoder='tiles_underfoot': must be another encoder with compat\.crop_row",
        ),
        (
            "oni",
            "smoke",
            {"reward.by": "sentence", "reward.intrinsic_coefficient": 0.0},
            r"reward\.by='sentence': must be 'message'",
        ),
    ],
)
def test_what_a_training_cannot_use_is_refused_before_it(
    name: str, variant: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        train_agent.check(load_config(name, variant, changes), tmp_path)


def test_the_penalty_needs_a_network_without_memory(tmp_path: Path) -> None:
    changes = {
        "algorithm.name": "ppo",
        "algorithm.kl": {"coefficient": 0.1},
        "network.core": "none",
    }
    train_agent.check(load_config("train_agent", "symbolic", changes), tmp_path)


def test_another_algorithm_says_which_values_of_appo_it_takes() -> None:
    section = load_config("train_agent", "", {"algorithm.name": "ppo"}).algorithm
    remark = train_agent.remark_on_algorithm(section)
    assert remark is not None
    assert "clip_ratio=0.1 (ppo's own: 0.2)" in remark
    section.clip_ratio = 0.3
    remark = train_agent.remark_on_algorithm(section)
    assert remark is not None
    assert "clip_ratio" not in remark
    for name in ("train_agent", "train_language_agent"):
        assert train_agent.remark_on_algorithm(load_config(name, "smoke").algorithm) is None


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
