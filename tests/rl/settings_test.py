from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.actors.rollouts import ActorsConfig
from motif_jax.rl import agent_networks, settings
from motif_jax.sections import Sharding
from motif_jax.sections.agents import Devices, agent_config
from motif_jax.sections.policies import LanguagePolicy
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
    options = settings.environment_options(agent_config(config))
    shown = {"max_episode_steps": 5000}
    switches = {
        "sober_mask",
        "oracle_patch_edge",
        "crop_row_offset",
        "seed_noop",
        "message_count_off",
        "timeout_as_terminal",
    }
    assert options == {**shown, "compat": {**dict.fromkeys(switches, True), "message_count_off": False}}
    config.reward.intrinsic_coefficient = 0.0
    assert settings.environment_options(agent_config(config)) == {
        **shown,
        "compat": dict.fromkeys(switches, True),
    }


def test_fields_are_those_that_the_reward_reads_and_nobody_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    reward = recall_training().reward
    for name, read, wanted in (
        ("NetHackScore-v1", ("message", "glyphs", "blstats"), {"fields": ["glyphs"]}),
        ("NetHackScore-v1", ("message",), {}),
        ("Recall-v0", ("message",), {}),
    ):
        kind = SimpleNamespace(required_fields=lambda reward, read=read: read)
        monkeypatch.setattr(settings.rewards, "kind_of", lambda reward, kind=kind: kind)
        assert settings.fields_option(name, {}, reward) == wanted
        options = {"fields": ["tty_chars"]}
        more = {"fields": ["tty_chars", *wanted["fields"]]} if wanted else {}
        assert name != "NetHackScore-v1" or settings.fields_option(name, options, reward) == more
    monkeypatch.setattr(kind, "required_fields", lambda reward: ("message", "glyphs", "sign"))
    with pytest.raises(
        UserError,
        match=r"^config\.reward\.dir=None: must be a reward that reads what Recall-v0 shows, not message, glyphs$",
    ):
        settings.fields_option("Recall-v0", {}, reward)


def test_actors_are_divided_over_hosts_and_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.os, "sched_getaffinity", lambda process: set(range(8)))
    changes: dict[str, Any] = {
        "actors__workers": 4,
        "actors__cores": "7, 1,2,3",
        "hosts__count": 3,
        "hosts__index": 2,
        "hosts__coordinator": "a:1",
    }
    config = settings.resolved(
        recall_training(**changes, batch_size=96 * 3, actors__rebuild=True, actors__warmup_steps=5)
    )
    found = settings.actors_configs(config, 2)
    whole = ActorsConfig(
        "Recall-v0", {"max_episode_steps": 5000, **config.environment.recall}, config.seed, 2, 3, 8, slots_per_group=2, first_env=48,
        warmup_steps=5, remembered=5000, cores=[7, 1],
    )  # fmt: skip
    assert found == [whole, dataclasses.replace(whole, first_env=60, cores=[2, 3])]
    assert settings.columns(config) == 12
    for changes, remembered, same in (
        ({"serial": True}, 5000, False),
        ({}, 0, False),
        ({"serial": True, "compat__seed_noop": True, "compat__timeout_as_terminal": True}, 0, True),
    ):
        (one,) = settings.actors_configs(settings.resolved(recall_training(**changes, actors__cores="")), 1)
        assert (one.remembered, one.same_step_autoreset, one.first_env, one.cores, one.workers) == (
            remembered,
            same,
            0,
            [],
            2,
        )
    assert settings.actor_cores(recall_training().actors) is None


@pytest.mark.parametrize(
    ("changes", "columns", "slots"),
    [
        ({}, 16, 2),
        ({"batch_size": 176}, 22, 2),
        ({"batch_size": 184}, 23, 3),
        ({"actors__slots_per_group": 9}, 16, 9),
    ],
)
def test_slots_hold_a_batch_and_what_a_slot_has_left(
    changes: dict[str, Any], columns: int, slots: int
) -> None:
    """Two workers of six environments in two groups: 12 columns a round of slots, and 2 that the batch before may have left."""
    config = settings.resolved(recall_training(**changes))
    assert (settings.columns(config), config.actors.slots_per_group) == (columns, slots)


def test_steps_of_the_optimiser() -> None:
    """Of 2,000 steps in batches of 128."""
    assert (
        settings.optimizer_steps(recall_training(algorithm__epochs=3, algorithm__minibatches=4)) == 16 * 3 * 4
    )
    ppo = load_config("train_agent", "symbolic")
    ppo.train_for_env_steps, ppo.batch_size = 2_000, 128
    ppo.algorithm.epochs, ppo.algorithm.minibatch_size = 3, 32
    assert settings.optimizer_steps(agent_config(ppo)) == 16 * 3 * 4


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


def test_devices_along_each_axis_of_a_split_network(monkeypatch: pytest.MonkeyPatch) -> None:
    config = recall_training()
    for fsdp, tensor, devices, wanted in (
        (1, 1, 8, None), (2, 1, 8, {"data": 4, "fsdp": 2, "tensor": 1}), (2, 3, 12, {"data": 2, "fsdp": 2, "tensor": 3}),
    ):  # fmt: skip
        split = dataclasses.replace(config, sharding=Sharding(fsdp=fsdp, tensor=tensor))
        assert agent_networks.mesh_sizes(split, devices) == wanted
    assert agent_networks.mesh_sizes(config, 8) is None
    split = dataclasses.replace(config, sharding=Sharding(fsdp=2))
    with pytest.raises(
        UserError, match=r"^config\.sharding: only language models can be split over devices: leave"
    ):
        agent_networks.make_parallel(split, jax.devices()[:2])
    assert agent_networks.make_parallel(config, jax.devices()[:2]).device_count == 2
    assert agent_networks.kind_of(config) == "game"
    assert agent_networks.prompt_room(config) is None
    assert agent_networks.read_anew(config) == {}
    assert not agent_networks.takes_any_actions(config)
    agent_networks.refuse_changed(config, {}, "here")
    said = "^here was trained with another tokenizer and another base model than config.network.model=talker has now: restore the"
    talker = dataclasses.replace(config, network=LanguagePolicy(model="talker"))
    monkeypatch.setattr(agent_networks, "read_anew", lambda config: {"tokenizer": "b", "base model": "c"})
    with pytest.raises(UserError, match=said):
        agent_networks.refuse_changed(talker, {"tokenizer": "a", "base model": "b"}, "here")
    agent_networks.refuse_changed(talker, {"tokenizer": "b"}, "here")
