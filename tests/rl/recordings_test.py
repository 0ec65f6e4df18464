"""Recordings of a training's games: the right actions, checked by playing them again, and nothing of what was lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.actors.group import episode_seed
from motif_jax.actors.rerecording import record_actions
from motif_jax.actors.worker_process import WorkerProcess
from motif_jax.algorithms.trajectory import TrajectoryBatch
from motif_jax.envs.replay import Recording
from motif_jax.rewards import IntrinsicReward, Values
from motif_jax.rl import recordings
from motif_jax.rl.recordings import ActionCollector, EpisodeRecorder, drop_recordings
from tests.rl.runs import episodes, train
from tests.rollouts.agent_runs import recall_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")

LENGTH = 6  # of an episode of Recall-v0 with a delay of 4
OPTIONS = {"cues": 4, "delay": 4, "max_episode_steps": 100}


@pytest.fixture(autouse=True)
def no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a training games are waited for, however busy the machine is."""
    monkeypatch.setattr(recordings, "_CLOSE_SECONDS", 240.0)


def batch(action: list[int], last: list[int], terminated: list[int]) -> TrajectoryBatch:
    def column(rows: list[int], dtype: type) -> np.ndarray:
        return np.array(rows, dtype)[:, None]

    empty = np.zeros((len(action), 1), bool)
    return TrajectoryBatch(
        observation={}, first=empty, last=column([*last, 0], bool), action=column(action, np.int32),
        behaviour_log_prob=empty, behaviour_value=empty, parameter_version=empty, reward=empty,
        intrinsic_reward=empty, terminated=column(terminated, bool), truncated=empty, initial_state=None,
    )  # fmt: skip


def column(*episodes: int) -> np.ndarray:
    return np.array(episodes)[:, None]


def test_actions_are_collected_over_batches_without_those_of_final_observations() -> None:
    collector, envs = ActionCollector(1), np.array([7])
    assert collector.add(batch([1, 2, 3], [0, 0, 0], [0, 0, 0]), envs, column(0, 0, 0)) == []
    found = collector.add(batch([4, 9, 5], [0, 1, 0], [1, 0, 0]), envs, column(0, 0, 1))
    assert [(f.env, f.episode, f.actions.tolist()) for f in found] == [(7, 0, [1, 2, 3, 4])]
    # Without rows of final observations the next row belongs to the next episode.
    found = collector.add(batch([6, 7, 8], [0, 0, 0], [1, 1, 0]), envs, column(1, 2, 3))
    assert [(f.episode, f.actions.tolist()) for f in found] == [(1, [5, 6]), (2, [7])]


def test_an_episode_that_was_lost_is_not_mixed_with_a_later_one() -> None:
    collector, envs = ActionCollector(2), np.array([2])
    assert collector.add(batch([1, 2, 3], [0, 0, 0], [0, 0, 0]), envs, column(0, 0, 0)) == []
    # The actor died: episode 0 is not heard of again; 1 is not one of those that are recorded.
    assert collector.add(batch([4, 5, 6], [0, 0, 0], [0, 0, 1]), envs, column(1, 1, 1)) == []
    found = collector.add(batch([7, 8, 0], [0, 0, 1], [0, 1, 0]), envs, column(2, 2, 2))
    assert [(f.episode, f.actions.tolist()) for f in found] == [(2, [7, 8])]


def report(env: int, episode: int, seed: int, length: float = LENGTH, value: float = 0.0) -> dict[str, float]:
    numbers = {"return": value, "length": length, "success": value}
    return {"env": env, "episode": episode, "seed": seed, **numbers}


def play(recorder: EpisodeRecorder, env: int, episode: int, answer: int) -> None:
    """One environment plays an episode of Recall in one batch."""
    ended = [0] * (LENGTH - 1) + [1]
    rows = batch([0] * (LENGTH - 1) + [answer], [0] * LENGTH, ended)
    recorder.take(rows, np.array([env]), np.full((LENGTH, 1), episode))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "recordings").glob("*"))


def test_only_whole_episodes_that_play_the_same_way_are_recorded(tmp_path: Path, capfd) -> None:
    wrong = next(answer for answer in range(4) if plays(3, answer) == 0.0)
    with EpisodeRecorder(tmp_path, "Recall-v0", OPTIONS, 1) as recorder:
        play(recorder, 0, 0, wrong)  # begun before the training: nobody reports it
        recorder.report(40, [report(0, 1, 3)])
        play(recorder, 0, 1, wrong)
        play(recorder, 0, 2, wrong)
        recorder.report(50, [report(0, 2, 3, length=LENGTH + 32)])  # a rollout of it was lost
        play(recorder, 0, 3, wrong)
        recorder.report(60, [report(0, 3, 3, value=1.0)])
        recorder.report(70, [report(5, 4, 3)])
        play(recorder, 5, 4, wrong)
    assert names(tmp_path) == [
        "step-000000000040-env-00000-episode-000001.json",
        "step-000000000070-env-00005-episode-000004.json",
    ]
    said = capfd.readouterr().err
    assert (
        "episode-000003.json is not recorded: seed 3 does not play the same way twice (return, success)"
        in said
    )


def plays(seed: int, answer: int) -> float:
    actions = np.array([0] * (LENGTH - 1) + [answer])
    return record_actions("Recall-v0", OPTIONS, seed, actions).info["return"]


def test_a_process_that_dies_is_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[WorkerProcess] = []

    class Mortal(WorkerProcess):
        """The first one is killed before it can have played anything."""

        def __init__(self, target: Any, setup: Mapping[str, Any]) -> None:
            super().__init__(target, setup)
            if not started:
                os.kill(self.process.pid, signal.SIGKILL)
            started.append(self)

    monkeypatch.setattr(recordings, "WorkerProcess", Mortal)
    wrong = next(answer for answer in range(4) if plays(3, answer) == 0.0)
    with EpisodeRecorder(tmp_path, "Recall-v0", OPTIONS, 1) as recorder:
        for episode in range(3):
            play(recorder, 0, episode, wrong)
            recorder.report(10 * episode, [report(0, episode, 3)])
    assert names(tmp_path) == [
        "step-000000000010-env-00000-episode-000001.json",
        "step-000000000020-env-00000-episode-000002.json",
    ]
    assert len(started) == 2
    assert "is not recorded: the process that played it again died" in capfd.readouterr().err


def test_what_a_resumed_run_plays_again_is_dropped(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    kept, dropped = (f"step-{step:012d}-env-00000-episode-000001.json" for step in (100, 101))
    for name in (kept, dropped, "mine.json"):
        (folder / name).write_text("{}")
    drop_recordings(tmp_path, 100)
    assert names(tmp_path) == ["mine.json", kept]
    drop_recordings(tmp_path, None)
    assert names(tmp_path) == ["mine.json"]


@pytest.mark.slow
def test_a_training_with_a_reward_leaves_recordings_of_its_games_and_a_line_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of games whose batches still waited when the training ended, too."""
    reward = IntrinsicReward()
    monkeypatch.setattr(reward, "lookup", lambda texts: Values(np.ones(len(texts), np.float32), 0))
    monkeypatch.setattr(rewards, "load_intrinsic", lambda *_: reward)
    changes = {"serial": False, "record_every": 2, "save_every_steps": 1}
    config = recall_config(train_for_env_steps=600, **changes)
    train(tmp_path, config)
    lines = episodes(tmp_path)
    expected = {
        f"step-{row['step']:012d}-env-{row['env']:05d}-episode-{row['episode']:06d}.json": row
        for row in lines
        if (row["env"] + row["episode"]) % 2 == 0
    }
    made = {name: Recording.load(tmp_path / "recordings" / name) for name in names(tmp_path)}
    assert len(made) > 25
    assert set(made) <= set(expected)
    for name, recording in made.items():
        row = expected[name]
        assert (
            recording.seed == row["seed"] == episode_seed(config.seed, int(row["env"]), int(row["episode"]))
        )
        again = record_actions(recording.task, recording.options, recording.seed, recording.actions)
        assert again.digest == recording.digest
        assert again.info == {name: row[name] for name in again.info}
    assert len({tuple(recording.actions.tolist()) for recording in made.values()}) > 3
    # Games are counted on: none is played twice.
    more = recall_config(train_for_env_steps=900, **changes)
    train(tmp_path, more)
    played = [(row["env"], row["episode"]) for row in episodes(tmp_path)]
    assert len(set(played)) == len(played) > len(lines)
