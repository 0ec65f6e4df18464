"""Lineups of policies that stand outside the package, and folders that are called like one."""

from __future__ import annotations

import json

import pytest

from motif_jax.envs import registry
from motif_jax.rollouts import eval_agents, evaluation_setup
from motif_jax.schema import values
from motif_jax.sections.played import LevelPolicy, PlayedPolicy
from motif_jax.support import run_folder
from motif_jax.support.errors import UserError
from tests.reward_fixtures import load_config

CORRIDOR = "tests.toys:Corridor"


def configured(**changes):
    config = load_config("evaluate", "smoke", {"environment.name": CORRIDOR, **changes})
    return values(PlayedPolicy, config)


def test_a_folder_with_a_colon_is_a_run_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("a:b", "at:12"):
        (tmp_path / folder).mkdir()
        with pytest.raises(UserError, match=rf"{folder}.*config.json"):
            evaluation_setup.check(configured(policy=folder))


def test_a_network_may_be_greedy():
    assert evaluation_setup.check(configured(policy="tests.toys:Flyer", greedy=True)).checkpoint is None


def test_an_agent_plays_in_a_task_that_shows_the_same_with_its_options(tmp_path):
    other, limit = "tests.toys:OtherHorizonCorridor", "environment.max_episode_steps"
    changes = {"environment.name": "tests.toys:HorizonCorridor", limit: 12}
    config = load_config("train_agent", "recall", changes)
    (tmp_path / "config.json").write_text(json.dumps(run_folder.as_plain(config)))
    own = {"agent.dir": str(tmp_path), limit: None}
    found = evaluation_setup.check(configured(**own, **{"environment.name": other}))
    assert found.spec.observation["tokens"].shape == (12,)
    with pytest.raises(UserError, match=r"config.environment.name='Recall-v0': must be tests.toys:Horizon"):
        evaluation_setup.check(configured(**own, **{"environment.name": "Recall-v0"}))
    assert registry.spec(other).observation["tokens"].shape == (30,)


def test_a_run_goes_on_with_the_player_that_it_began_with(tmp_path):
    config = values(LevelPolicy, load_config("test_language_agent", "smoke"))
    player = eval_agents.open_pinned(config, tmp_path)
    assert (player.name, player.checkpoint, player.room) == ("random", None, None)
    eval_agents.pin(tmp_path, player)
    assert eval_agents.open_pinned(config, tmp_path).name == "random"
    damaged = r"plan.json is damaged \(no checkpoint or no digests\): restore"
    for step, read, told in (
        ("best", {}, damaged),
        (None, [], damaged),
        (None, {"model": "x", "file": "y"}, "random has another model and another file than when"),
    ):
        (tmp_path / "plan.json").write_text(json.dumps({"checkpoint": step, "read": read}))
        with pytest.raises(UserError, match=told):
            eval_agents.open_pinned(config, tmp_path)
