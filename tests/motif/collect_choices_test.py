"""What a collection chooses by its config: players, recorded fields, and room on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.motif import collect
from motif_jax.motif.config import CollectConfig
from motif_jax.schema import read_section
from tests.reward_fixtures import load_config
from tests.toys import Talker


class Forgetful(Talker):
    """Its text depends on the episodes before, too."""

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        self._episodes = getattr(self, "_episodes", 0) + 1
        super().reset(seed + self._episodes, out)


@pytest.fixture(scope="module")
def nethack() -> EnvironmentSpec:
    return registry.spec("NetHackScore-v1")


@pytest.fixture(scope="module")
def recall() -> EnvironmentSpec:
    return registry.spec("Recall-v0")


def config_tree(**values: Any) -> ConfigDict:
    return load_config("collect", "smoke", {"num_pairs": 1000, "length": 3, **values})


def config_of(**values: Any) -> CollectConfig:
    return read_section(CollectConfig, config_tree(**values))


def mixture(**values: Any) -> CollectConfig:
    return config_of(**{"mixture.walker": 0, "mixture.agents": 0.5, **values})


def test_a_mixture_leaves_players_without_weight_out(nethack: EnvironmentSpec) -> None:
    assert collect.player_weights(mixture(), nethack) == {
        "uniform": 2,
        "runner": 3,
        "kicker": 6,
        "searcher": 1,
        "eater": 2,
        "descender": 3,
        "agents": 0.5,
    }


def test_without_scripted_players_a_mixture_has_the_others(recall: EnvironmentSpec) -> None:
    assert collect.player_weights(mixture(), recall) == {"uniform": 2.0, "agents": 0.5}


@pytest.mark.parametrize(
    ("policy", "weights"), [("random", {"uniform": 1.0}), ("scripted", {"scripted": 1.0})]
)
def test_one_player_plays_alone(
    nethack: EnvironmentSpec, policy: str, weights: dict[str, float]
) -> None:
    assert collect.player_weights(mixture(policy=policy), nethack) == weights


def test_screens_of_a_terminal_are_recorded(nethack: EnvironmentSpec) -> None:
    assert collect.recorded_fields(config_of(), nethack) == ("blstats", "tty_chars", "tty_colors")


def test_glyphs_are_recorded_in_place_of_screens(nethack: EnvironmentSpec) -> None:
    config = config_of(screens=False, glyphs=True)

    assert collect.recorded_fields(config, nethack) == ("blstats", "glyphs")


def test_fields_that_an_environment_lacks_are_not_recorded(recall: EnvironmentSpec) -> None:
    assert collect.recorded_fields(config_of(screens=False, glyphs=True), recall) == ()


@pytest.mark.parametrize(
    ("values", "use"),
    [
        ({"policy": "agents"}, "config.policy=agents"),
        ({"policy": "mixture", "mixture.agents": 0.5}, r"config.mixture.agents=0\.5"),
    ],
)
def test_agents_need_episodes_that_can_be_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], use: str
) -> None:
    name = f"{__name__}:Forgetful"
    monkeypatch.setenv("MOTIF_JAX_TRUST", name)
    forgetful = {"environment.name": name, "agents": "runs/agent"}

    with pytest.raises(
        UserError, match=rf"^{use} plays episodes again from their seeds and actions"
    ):
        collect.check(config_tree(**forgetful, **values), tmp_path)


class DiskUsage(NamedTuple):
    """What `shutil.disk_usage` returns."""

    total: int
    used: int
    free: int


# Texts and rewards of three steps of two sub-sequences, twice and a little more.
NEEDED = int(2.1 * (256 + 4) * 3 * 2 * 1000)


def leave_room(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: DiskUsage(size, 0, size))


def test_a_disk_with_just_enough_room_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recall: EnvironmentSpec
) -> None:
    leave_room(monkeypatch, NEEDED)

    collect.require_disk_space(config_of(), tmp_path / "new/run", recall)


def test_a_disk_with_a_byte_too_little_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recall: EnvironmentSpec
) -> None:
    leave_room(monkeypatch, NEEDED - 1)

    with pytest.raises(UserError, match=f"needs about 0.00328 GB .*, {tmp_path} has 0.00328 GB:"):
        collect.require_disk_space(config_of(), tmp_path / "new/run", recall)


def empty_share(folder: Path, **values: Any) -> float:
    changes = {"environment.name": "MiniGrid-DoorKey-6x6-v0", "policy": "random", **values}
    tree = load_config("collect", "", {"num_pairs": 400, "workers": 1, **changes})
    assert collect.run(tree, folder) is None
    messages = np.load(folder / "data" / "message.npy")
    return float((messages.reshape(-1, messages.shape[-1]).max(axis=1) == 0).mean())


def test_messages_are_balanced_without_a_start_share(tmp_path: Path) -> None:
    of_steps = empty_share(tmp_path / "steps", spread="steps")
    of_messages = empty_share(tmp_path / "messages", spread="messages")

    assert of_messages < of_steps / 2
