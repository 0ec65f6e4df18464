from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.rl import settings
from motif_jax.sections.agents import Devices, agent_config
from motif_jax.stages import train_agent
from motif_jax.support import capacity
from motif_jax.support.errors import UserError
from tests.reward_fixtures import load_config
from tests.rollouts.agent_runs import recall_config, recall_training


def test_extrinsic_coefficient_depends_on_the_task_unless_given() -> None:
    config = load_config("train_agent", "")
    for task, given, expected in (
        ("NetHackScore-v1", None, 0.1),
        ("NetHackStaircaseLvl3ExtendedActions-v1", None, 10.0),
        ("NetHackOracle-v1", 0.0, 0.0),
    ):
        config.environment.name, config.reward.extrinsic_coefficient = task, given
        assert settings.resolved(agent_config(config)).reward.extrinsic_coefficient == expected
        assert config.reward.extrinsic_coefficient == given


def test_messages_are_counted_whenever_an_intrinsic_reward_is_trained_on() -> None:
    config = load_config("train_agent", "faithful")
    assert not settings.environment_options(agent_config(config))["compat"]["message_count_off"]
    config.reward.intrinsic_coefficient = 0.0
    assert settings.environment_options(agent_config(config))["compat"]["message_count_off"]


def test_actors_are_divided_over_devices() -> None:
    config = settings.resolved(recall_training(actors__workers=4))
    first, second = settings.actors_configs(config, 2)
    assert (first.workers, second.workers) == (2, 2)
    assert (first.first_env, second.first_env) == (0, 12)


def test_rewards_of_texts_are_computed_beside_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = jax.devices()
    for learner, actor, place in [("0", "first", 0), ("0", "0,1", 1), ("0,1", "2,3", 2), ("all", "all", 0)]:
        assert settings.lookup_device(Devices(learner=learner, actor=actor)) == cpus[place]
    # Beside GPUs the CPU, unless it was left out.
    gpus = [SimpleNamespace(platform="gpu", id=number) for number in range(2)]
    monkeypatch.setattr(jax, "local_devices", lambda backend=None: cpus if backend == "cpu" else gpus)
    assert settings.lookup_device(Devices(actor="0,1", learner="0")) == cpus[0]

    def without_cpu(backend: str | None = None) -> list[Any]:
        if backend is not None:
            raise RuntimeError("Unknown backend cpu")
        return gpus

    monkeypatch.setattr(jax, "local_devices", without_cpu)
    assert settings.lookup_device(Devices(actor="0,1", learner="0")) is gpus[1]


def test_products_are_as_exact_as_the_config_says() -> None:
    def precision() -> str | None:
        product = jax.make_jaxpr(lambda x: x @ x)(np.ones((2, 2), np.float32)).eqns[0]
        return product.params["precision"] and product.params["precision"][0].name

    try:
        settings.configure_jax(recall_training(matmul_precision="highest"))
        assert precision() == "HIGHEST"
    finally:
        settings.configure_jax(recall_training())
    assert precision() is None


def test_slots_without_memory_are_told_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recall_config(devices__actor="0,1", serial=True)
    parts = settings.actors_configs(settings.resolved(agent_config(config)), 2)
    needed = sum(part.layout().size for part in parts)
    monkeypatch.setattr(capacity, "available_memory", lambda: needed)
    train_agent.check(config, tmp_path)
    monkeypatch.setattr(capacity, "available_memory", lambda: needed - 1)
    with pytest.raises(UserError, match=r"trajectory slots need .* lower config\.actors\.workers"):
        train_agent.check(config, tmp_path)


def test_workers_need_memory_for_each_of_their_games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = recall_config(actors__workers=4, actors__envs_per_worker=20)
    one_game, needed = (4 * (capacity.WORKER_BYTES + more * capacity.GAME_BYTES) for more in (0, 19))
    monkeypatch.setattr(capacity, "available_memory", lambda: (one_game + needed) // 2)
    with pytest.raises(UserError, match=r"config\.actors\.workers=4: .* of memory"):
        train_agent.check(config, tmp_path)
    monkeypatch.setattr(capacity, "available_memory", lambda: needed)
    train_agent.check(config, tmp_path)
