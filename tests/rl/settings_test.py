"""What follows from a config: coefficients, fields, actors, slots, devices, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.sections import Sharding
from motif_jax.glam.config import LanguagePolicy
from motif_jax.glam.network_kinds import LanguageNetworkKind
from motif_jax.rl import agent_networks, settings
from motif_jax.rl.config import Devices, agent_config
from motif_jax.rl.intrinsic import RewardKind
from tests.made_up_devices import MadeUpDevice
from tests.play.agent_runs import changed, recall_training
from tests.reward_fixtures import load_config


@pytest.mark.parametrize(
    ("task", "coefficient", "resolved"),
    [
        ("NetHackScore-v1", None, 0.1),
        ("NetHackStaircaseLvl3ExtendedActions-v1", None, 10.0),
        ("NetHackOracle-v1", 0.0, 0.0),
    ],
)
def test_an_extrinsic_coefficient_of_none_depends_on_the_task(
    task: str, coefficient: float | None, resolved: float
) -> None:
    config = load_config("train_agent", "")
    config.environment.name = task
    config.reward.extrinsic_coefficient = coefficient

    assert settings.resolved(agent_config(config)).reward.extrinsic_coefficient == resolved
    assert config.reward.extrinsic_coefficient == coefficient


def read_by_the_reward(monkeypatch: pytest.MonkeyPatch, *fields: str) -> None:
    """Lets every reward read these fields."""

    class Reading(RewardKind):
        @classmethod
        def required_fields(cls, config: Any) -> tuple[str, ...]:
            return fields

    monkeypatch.setattr(settings.intrinsic, "kind_of", lambda reward: Reading)


@pytest.mark.parametrize(
    ("options", "fields"), [({}, ["glyphs"]), ({"fields": ["tty_chars"]}, ["tty_chars", "glyphs"])]
)
def test_fields_that_the_reward_reads_are_added_to_those_shown(
    options: dict[str, Any], fields: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by_the_reward(monkeypatch, "message", "glyphs", "blstats")

    option = settings.fields_option("NetHackScore-v1", options, recall_training().reward)

    assert option == {"fields": fields}


@pytest.mark.parametrize("task", ["NetHackScore-v1", "Recall-v0"])
def test_a_reward_of_the_text_needs_no_more_fields(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by_the_reward(monkeypatch, "message")

    assert settings.fields_option(task, {}, recall_training().reward) == {}


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.os, "sched_getaffinity", lambda process: set(range(8)))


@pytest.mark.usefixtures("eight_cores")
def test_actors_of_hosts_and_devices_play_games_of_their_own() -> None:
    """Host 2 of 3, each of whose two devices has two of four actors of six environments."""
    hosts = {
        "hosts__count": 3,
        "hosts__index": 2,
        "hosts__coordinator": "a:1",
        "batch_size": 96 * 3,
    }
    cores = {"actors__workers": 4, "actors__cores": "7, 1,2,3"}
    config = settings.resolved(recall_training(**hosts, **cores, actors__warmup_steps=5))

    first, second = settings.actors_configs(config, 2)

    assert settings.columns(config) == 288 // 8 // 3
    assert (first.workers, first.first_env, first.cores) == (2, 48, [7, 1])
    assert (second.workers, second.first_env, second.cores) == (2, 60, [2, 3])
    assert first.warmup_steps == second.warmup_steps == 5
    assert first.seed == second.seed == config.seed


@pytest.mark.parametrize("published", [False, True])
def test_timeouts_as_terminals_reset_in_the_same_step(published: bool) -> None:
    config = settings.resolved(recall_training(serial=True, compat__timeout_as_terminal=published))

    assert settings.actors_configs(config, 1)[0].same_step_autoreset == published


@pytest.mark.parametrize(
    ("changes", "columns", "slots"),
    [
        # A round of slots has 12 columns, and the batch before may have left 2.
        ({"batch_size": 176}, 22, 2),
        ({"batch_size": 184}, 23, 3),
    ],
)
def test_slots_hold_a_batch_and_what_the_last_one_left(
    changes: dict[str, Any], columns: int, slots: int
) -> None:
    config = settings.resolved(recall_training(**changes))

    assert (settings.columns(config), settings.slots_per_group(config)) == (columns, slots)


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


@pytest.mark.parametrize(
    ("changes", "off"), [({}, False), ({"reward__intrinsic_coefficient": 0.0}, True)]
)
def test_published_counts_of_messages_need_an_intrinsic_reward(
    changes: dict[str, Any], off: bool
) -> None:
    config = agent_config(changed(load_config("train_agent", "faithful"), **changes))

    switches = settings.environment_options(config)["compat"]
    assert switches.pop("message_count_off") == off
    assert set(switches.values()) == {True}


def test_options_of_a_level_are_those_of_its_section() -> None:
    options = settings.environment_options(agent_config(load_config("train_agent", "symbolic")))

    assert options["fields"] == ["instruction"]
    assert (options["observations"], options["distractors"], options["kind"]) == (3, None, "")
    assert set(options["compat"].values()) == {False}


@pytest.mark.parametrize(
    ("learner", "actor", "number"),
    [("0", "first", 0), ("0", "0,1", 1), ("0,1", "2,3", 2), ("all", "all", 0)],
)
def test_rewards_of_texts_use_a_device_that_only_acts(
    learner: str, actor: str, number: int
) -> None:
    devices = Devices(learner=learner, actor=actor)
    assert settings.lookup_device(devices) == jax.devices()[number]


def test_rewards_of_texts_are_computed_on_the_cpu_beside_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpus = jax.devices()
    gpus = [MadeUpDevice(id=0), MadeUpDevice(id=1)]
    monkeypatch.setattr(
        jax, "local_devices", lambda backend=None: cpus if backend == "cpu" else gpus
    )
    assert settings.lookup_device(Devices(actor="0,1", learner="0")) == cpus[0]


def test_without_a_cpu_rewards_of_texts_use_an_acting_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = [MadeUpDevice(id=0), MadeUpDevice(id=1)]

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


@pytest.mark.parametrize(
    ("fsdp", "tensor", "devices", "sizes"),
    [
        (1, 1, 8, None),
        (2, 1, 8, {"data": 4, "fsdp": 2, "tensor": 1}),
        (2, 3, 12, {"data": 2, "fsdp": 2, "tensor": 3}),
    ],
)
def test_a_split_network_has_devices_along_each_axis(
    fsdp: int, tensor: int, devices: int, sizes: dict[str, int] | None
) -> None:
    split = dataclasses.replace(recall_training(), sharding=Sharding(fsdp=fsdp, tensor=tensor))
    assert agent_networks.mesh_sizes(split, devices) == sizes


def test_a_network_without_sharding_is_whole_on_each_device() -> None:
    config = recall_training()
    assert agent_networks.mesh_sizes(config, 8) is None
    assert agent_networks.make_parallel(config, jax.devices()[:2]).device_count == 2


def test_a_network_of_fields_cannot_be_split() -> None:
    split = dataclasses.replace(recall_training(), sharding=Sharding(fsdp=2))
    message = r"^config\.sharding: only language models can be split over devices: leave"
    with pytest.raises(UserError, match=message):
        agent_networks.make_parallel(split, jax.devices()[:2])


def test_a_network_of_fields_reads_no_prompts() -> None:
    config = recall_training()
    kind = agent_networks.class_of(config)
    assert kind.prompt_room(config) is None
    assert not kind.takes_any_actions(config)


def test_files_that_changed_since_the_training_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    talker = dataclasses.replace(recall_training(), network=LanguagePolicy(model="talker"))
    digests = {"tokenizer": "b", "base model": "c"}
    monkeypatch.setattr(LanguageNetworkKind, "file_digests", lambda config: digests)

    message = "^here was trained with a different tokenizer and a different base model than config.network.model=talker has now: restore the"
    with pytest.raises(UserError, match=message):
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
    monkeypatch.setattr(
        settings, "learner_devices", lambda devices: [MadeUpDevice(platform=platform)]
    )
    config = recall_training(
        **{"actors__envs_per_worker": 8, "actors__groups_per_worker": None, **changes}
    )
    resolved = settings.resolved(config)
    assert resolved.actors.groups_per_worker == groups
    assert settings.actors_configs(resolved, 1)[0].groups_per_worker == groups
