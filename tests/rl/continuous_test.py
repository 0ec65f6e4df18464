"""Agents whose actions are real numbers: they learn, and their episodes are recorded, evaluated,
filmed and collected.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax import agents
from motif_jax.core.errors import UserError
from motif_jax.envs.recording import Recording, record_actions
from motif_jax.motif import collect
from motif_jax.play import (
    agent_policy,
    evaluate,
    evaluation_files,
    visualize,
)
from motif_jax.rl import episode_recorder
from tests.play.agent_runs import continuous_config
from tests.reward_fixtures import load_config
from tests.rl import runs
from tests.sets import extra

GAME = {"environment.name": "gym:ToyAim-v0", "environment.modules": "tests.gym_toys"}
CAPTIONS = {"environment.text": "info:event"}
# Of random play, ten times the mean distance between even draws from [-1, 1] and from [-0.8, 0.8].
RANDOM_RETURN = -6.1


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short training whose games are recorded."""
    folder = tmp_path_factory.mktemp("continuous") / "run"
    values = {"environment__text": "info:event", "actors__workers": 2, "actors__envs_per_worker": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(episode_recorder, "CLOSE_SECONDS", 240.0)
        runs.train(folder, continuous_config(**values, train_for_env_steps=640, record_every=3))
    return folder


def run_stage(stage: Any, name: str, folder: Path, **values: Any) -> None:
    config = load_config(
        name, "smoke", {key.replace("__", "."): value for key, value in values.items()} | GAME
    )
    stage.check(config, folder)
    assert stage.run(config, folder) is None


def with_ppo(config: ConfigDict) -> ConfigDict:
    values = {"name": "ppo", "minibatch_size": 32, "microbatch_size": 32, "positive_reward": False}
    with config.unlocked():
        config.algorithm = ConfigDict(values)
    return config


@pytest.mark.extra
@pytest.mark.parametrize("algorithm", [extra("appo"), "ppo"])
def test_an_agent_learns_where_to_aim(tmp_path: Path, algorithm: str) -> None:
    config = continuous_config(train_for_env_steps=12_000)
    runs.train(tmp_path, with_ppo(config) if algorithm == "ppo" else config)

    returns = [row["return"] for row in runs.episodes(tmp_path)]
    assert np.mean(returns[:20]) == pytest.approx(RANDOM_RETURN, abs=1.2)
    assert np.mean(returns[-50:]) > RANDOM_RETURN / 2


@pytest.mark.slow
def test_the_policy_that_learns_is_the_one_that_played(tmp_path: Path) -> None:
    # One pass over a batch of its own policy: all ratios are 1.
    values = {"algorithm__epochs": 1, "algorithm__minibatches": 1, "log_every_seconds": 1e-9}
    runs.train(tmp_path, continuous_config(**values, train_for_env_steps=128))

    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        assert row["policy/ratio_min"] == pytest.approx(1, abs=1e-3)
        assert row["policy/ratio_max"] == pytest.approx(1, abs=1e-3)


@pytest.mark.extra
def test_recorded_games_play_again_from_their_numbers(run: Path) -> None:
    paths = sorted((run / "recordings").glob("*.json"))
    assert len(paths) > 3
    recording = Recording.load(paths[0])

    again = record_actions(recording.task, recording.options, recording.seed, recording.actions)

    assert recording.actions.dtype == np.float32
    assert recording.actions.shape == (10, 2)
    assert again.digest == recording.digest
    changed = record_actions(
        recording.task, recording.options, recording.seed, recording.actions * 0.5
    )
    assert changed.digest != recording.digest


@pytest.mark.slow
@pytest.mark.parametrize("policy", [extra("agent"), "random"])
def test_evaluated_games_are_filmed_again(run: Path, tmp_path: Path, policy: str) -> None:
    folder = tmp_path / "evaluation"
    values = {
        "policy": policy,
        "agent__dir": str(run),
        "reward__dir": "",
        "episodes": 5,
        "lanes": 4,
        **CAPTIONS,
    }
    run_stage(evaluate, "evaluate", folder, **values)

    rows = evaluation_files.read_rows(folder / "episodes.jsonl")
    assert [evaluation_files.decode_actions(row["actions"]).shape for row in rows] == [(10, 2)] * 5
    shown = {"recorded.evaluation": str(folder), "recorded.episodes": "best"}
    config = load_config(
        "visualize", "smoke", {**shown, "recorded.agent.dir": "", "reward.dir": ""}
    )
    visualize.check(config, tmp_path / "films")
    assert visualize.run(config, tmp_path / "films") is None
    assert len(list((tmp_path / "films").glob("episode-*.html"))) == 1


@pytest.mark.extra
def test_a_watched_game_names_its_numbers(run: Path, tmp_path: Path) -> None:
    run_stage(
        visualize,
        "visualize",
        tmp_path,
        policy="agent",
        agent__dir=str(run),
        reward__dir="",
        episodes=1,
        **CAPTIONS,
    )

    recording = Recording.load(tmp_path / "episode-00000.json")
    page = (tmp_path / "episode-00000.html").read_text()
    first, second = recording.actions[0].tolist()
    assert f"{first:.2f}, {second:.2f}" in page


@pytest.mark.extra
def test_agents_and_random_players_are_collected(run: Path, tmp_path: Path) -> None:
    for players in ({"policy": "agents", "agents": str(run)}, {"policy": "random"}):
        folder = tmp_path / players["policy"]
        run_stage(collect, "collect", folder, **players, num_pairs=20, **CAPTIONS)
        assert (folder / "data" / "message.npy").is_file()


@pytest.mark.slow
def test_an_environment_with_other_numbers_is_refused(run: Path) -> None:
    with pytest.raises(
        UserError,
        match="with actions of 2 numbers, gym:Pendulum-v1 has actions of 1 numbers: choose",
    ):
        agent_policy.load(run, environment="gym:Pendulum-v1")


@pytest.mark.slow
def test_a_library_user_plays_numbers(run: Path) -> None:
    agent = agents.load(run)
    environment = agent.make_env()
    observation, _ = environment.reset(seed=3)

    action, state = agent.act(observation)
    several, _ = agent.act({name: np.stack([field, field]) for name, field in observation.items()})

    assert environment.action_space.contains(action)
    assert several.shape == (2, 2)
    assert state.probabilities is None
    _, reward, *_ = environment.step(action)
    assert -2 < reward < 0
