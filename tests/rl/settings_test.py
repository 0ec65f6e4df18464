from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.core import capacity
from motif_jax.core.errors import UserError
from motif_jax.core.sections import Sharding
from motif_jax.glam.config import LanguagePolicy
from motif_jax.rl import agent_networks, settings, train_agent
from motif_jax.rl.config import Devices, agent_config
from tests.play.agent_runs import changed, recall_config, recall_training
from tests.reward_fixtures import load_config


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


def test_fields_are_those_that_the_reward_reads_and_nobody_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    reward = recall_training().reward
    for name, read, wanted in (
        ("NetHackScore-v1", ("message", "glyphs", "blstats"), {"fields": ["glyphs"]}),
        ("NetHackScore-v1", ("message",), {}),
        ("Recall-v0", ("message",), {}),
    ):
        kind = SimpleNamespace(required_fields=lambda reward, read=read: read)
        monkeypatch.setattr(settings.reward_kinds, "kind_of", lambda reward, kind=kind: kind)
        assert settings.fields_option(name, {}, reward) == wanted
        options = {"fields": ["tty_chars"]}
        more = {"fields": ["tty_chars", *wanted["fields"]]} if wanted else {}
        assert name != "NetHackScore-v1" or settings.fields_option(name, options, reward) == more
    monkeypatch.setattr(kind, "required_fields", lambda reward: ("message", "glyphs", "sign"))
    said = (
        r"^config\.reward\.dir=None: must be a reward that reads what Recall-v0 shows, not message, glyphs$"
    )
    with pytest.raises(UserError, match=said):
        settings.fields_option("Recall-v0", {}, reward)


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.os, "sched_getaffinity", lambda process: set(range(8)))


@pytest.mark.usefixtures("eight_cores")
def test_actors_of_hosts_and_devices_play_games_of_their_own() -> None:
    """Host 2 of 3, each of whose two devices has two of four actors of six environments."""
    hosts = {"hosts__count": 3, "hosts__index": 2, "hosts__coordinator": "a:1", "batch_size": 96 * 3}
    cores = {"actors__workers": 4, "actors__cores": "7, 1,2,3"}
    config = settings.resolved(recall_training(**hosts, **cores, actors__warmup_steps=5))

    first, second = settings.actors_configs(config, 2)

    assert settings.columns(config) == 288 // 8 // 3
    assert (first.workers, first.first_env, first.cores) == (2, 48, [7, 1])
    assert (second.workers, second.first_env, second.cores) == (2, 60, [2, 3])
    assert first.warmup_steps == second.warmup_steps == 5
    assert first.seed == second.seed == config.seed


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(
    ("changes", "remembered"),
    [
        ({}, 0),
        ({"serial": True}, 5000),
        ({"actors__rebuild": True}, 5000),
        # Games without seeds cannot be replayed.
        ({"serial": True, "compat__seed_noop": True}, 0),
    ],
)
def test_actors_remember_actions_of_games_that_are_played_again(
    changes: dict[str, Any], remembered: int
) -> None:
    (actors,) = settings.actors_configs(settings.resolved(recall_training(**changes)), 1)

    assert actors.remembered == remembered


@pytest.mark.parametrize("published", [False, True])
def test_timeouts_as_terminals_begin_the_next_episode_in_the_same_step(published: bool) -> None:
    config = settings.resolved(recall_training(serial=True, compat__timeout_as_terminal=published))

    assert settings.actors_configs(config, 1)[0].same_step_autoreset == published


@pytest.mark.parametrize(
    ("changes", "columns", "slots"),
    [
        # A round of slots has 12 columns, and the batch before may have left 2.
        ({"batch_size": 176}, 22, 2),
        ({"batch_size": 184}, 23, 3),
        ({"actors__slots_per_group": 9}, 16, 9),
    ],
)
def test_slots_hold_a_batch_and_what_the_last_one_left(
    changes: dict[str, Any], columns: int, slots: int
) -> None:
    config = settings.resolved(recall_training(**changes))

    assert (settings.columns(config), config.actors.slots_per_group) == (columns, slots)


def test_optimizer_steps_are_updates_times_epochs_and_minibatches() -> None:
    config = recall_training(batch_size=176, algorithm__epochs=3, algorithm__minibatches=4)
    plain = recall_training(batch_size=176)
    updates = -(-config.train_for_env_steps // 176)

    assert settings.optimizer_steps(config) == updates * 3 * 4
    assert settings.optimizer_steps(plain) == updates


def test_optimizer_steps_of_ppo_are_passes_over_minibatches() -> None:
    config = changed(
        load_config("train_agent", "symbolic"),
        batch_size=64,
        algorithm__epochs=3,
        algorithm__minibatch_size=32,
    )
    updates = -(-config.train_for_env_steps // 64)

    assert settings.optimizer_steps(agent_config(config)) == updates * 3 * 2


@pytest.mark.parametrize(("changes", "off"), [({}, False), ({"reward__intrinsic_coefficient": 0.0}, True)])
def test_published_counts_of_messages_need_an_intrinsic_reward(changes: dict[str, Any], off: bool) -> None:
    config = agent_config(changed(load_config("train_agent", "faithful"), **changes))

    switches = settings.environment_options(config)["compat"]
    assert switches.pop("message_count_off") == off
    assert set(switches.values()) == {True}


def test_options_of_a_level_are_those_of_its_section() -> None:
    options = settings.environment_options(agent_config(load_config("train_agent", "symbolic")))

    assert options["fields"] == ["instruction"]
    assert (options["observations"], options["distractors"], options["kind"]) == (3, None, "")
    assert set(options["compat"].values()) == {False}


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


def test_memory_is_looked_for_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slots, games = recall_config(devices__actor="0,1", serial=True), recall_config(actors__envs_per_worker=20)
    parts = settings.actors_configs(settings.resolved(agent_config(slots)), 2)
    of_slots = sum(part.layout().size for part in parts), "trajectory slots need .* lower config.actors.work"
    of_games = 2 * (capacity.WORKER_BYTES + 19 * capacity.GAME_BYTES), "config.actors.workers=2: .* of memory"
    for config, (needed, said) in ((slots, of_slots), (games, of_games)):
        monkeypatch.setattr(capacity, "available_memory", lambda it=needed: it)
        train_agent.check(config, tmp_path)
        monkeypatch.setattr(capacity, "available_memory", lambda it=needed: it - 1)
        with pytest.raises(UserError, match=said):
            train_agent.check(config, tmp_path)


def test_devices_along_each_axis_of_a_split_network(monkeypatch: pytest.MonkeyPatch) -> None:
    config = recall_training()
    for fsdp, tensor, devices, wanted in (
        (1, 1, 8, None),
        (2, 1, 8, {"data": 4, "fsdp": 2, "tensor": 1}),
        (2, 3, 12, {"data": 2, "fsdp": 2, "tensor": 3}),
    ):
        split = dataclasses.replace(config, sharding=Sharding(fsdp=fsdp, tensor=tensor))
        assert agent_networks.mesh_sizes(split, devices) == wanted
    assert agent_networks.mesh_sizes(config, 8) is None
    split = dataclasses.replace(config, sharding=Sharding(fsdp=2))
    said = r"^config\.sharding: only language models can be split over devices: leave"
    with pytest.raises(UserError, match=said):
        agent_networks.make_parallel(split, jax.devices()[:2])
    assert agent_networks.make_parallel(config, jax.devices()[:2]).device_count == 2
    assert agent_networks.prompt_room(config) is None
    assert not agent_networks.takes_any_actions(config)
    said = "^here was trained with another tokenizer and another base model than config.network.model=talker has now: restore the"
    talker = dataclasses.replace(config, network=LanguagePolicy(model="talker"))
    monkeypatch.setattr(agent_networks, "read_anew", lambda config: {"tokenizer": "b", "base model": "c"})
    with pytest.raises(UserError, match=said):
        agent_networks.refuse_changed(talker, {"tokenizer": "a", "base model": "b"}, "here")
    agent_networks.refuse_changed(talker, {"tokenizer": "b"}, "here")


@pytest.mark.parametrize(
    ("platform", "changes", "groups"),
    [
        ("gpu", {}, 4),
        ("cpu", {}, 2),
        ("gpu", {"serial": True}, 2),
        ("gpu", {"actors__envs_per_worker": 6}, 2),
        ("gpu", {"actors__groups_per_worker": 1}, 1),
    ],
)
def test_workers_beside_a_gpu_have_four_groups(
    platform: str, changes: dict[str, Any], groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "learner_devices", lambda devices: [SimpleNamespace(platform=platform)])
    config = recall_training(**{"actors__envs_per_worker": 8, "actors__groups_per_worker": None, **changes})
    resolved = settings.resolved(config)
    assert resolved.actors.groups_per_worker == groups
    assert settings.actors_configs(resolved, 1)[0].groups_per_worker == groups


@pytest.mark.parametrize(("envs", "said"), [(8, False), (9, True)])
def test_more_environments_than_two_batches_are_told(envs: int, said: bool) -> None:
    config = recall_training(
        rollout=16,
        batch_size=64,
        actors__workers=1,
        actors__envs_per_worker=envs,
        actors__groups_per_worker=1,
    )
    remark = settings.remark_on_lag(settings.resolved(config))
    assert (remark is not None) == said
    if remark is not None:
        assert "9 environments x config.rollout=16 fill 2.2 batches" in remark
