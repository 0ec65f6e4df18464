"""Recordings of a training's games: the right actions, checked by playing them again, and nothing
of what was lost.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core.devices.services import ServiceFailedError
from motif_jax.envs.recording import Recording, record_actions
from motif_jax.rewards import RewardKind, Values
from motif_jax.rl import episode_recorder, intrinsic
from motif_jax.rl.actors.actor import episode_seed
from motif_jax.rl.actors.worker_process import WorkerProcess
from motif_jax.rl.episode_recorder import ActionCollector, EpisodeRecorder, drop_recordings
from tests.play.agent_runs import recall_config
from tests.rl.runs import column, episodes, steps_of, train

LENGTH = 6  # of an episode of Recall-v0 with a delay of 4
OPTIONS = {"cues": 4, "delay": 4, "max_episode_steps": 100}


@pytest.fixture(autouse=True)
def no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_recorder, "CLOSE_SECONDS", 240.0)


@pytest.mark.parametrize(
    ("every", "env", "batches"),
    [
        # Without rows of final observations the next row belongs to the next episode.
        (1, 7, [
            (([1, 2, 3], [0, 0, 0], [0, 0, 0]), (0, 0, 0), []),
            (([4, 9, 5], [0, 1, 0], [1, 0, 0]), (0, 0, 1), [(0, [1, 2, 3, 4])]),
            (([6, 7, 8], [0, 0, 0], [1, 1, 0]), (1, 2, 3), [(1, [5, 6]), (2, [7])]),
        ]),
        # The actor dies after the first batch: the rest of episode 0 never comes. Episode 1 is not
        # to be recorded.
        (2, 2, [
            (([1, 2, 3], [0, 0, 0], [0, 0, 0]), (0, 0, 0), []),
            (([4, 5, 6], [0, 0, 0], [0, 0, 1]), (1, 1, 1), []),
            (([7, 8, 0], [0, 0, 1], [0, 1, 0]), (2, 2, 2), [(2, [7, 8])]),
        ]),
    ],
)  # fmt: skip
def test_actions_are_collected_over_batches(every: int, env: int, batches: Any) -> None:
    collector = ActionCollector(every)
    for batch, numbers, expected in batches:
        finished = collector.add(column(*batch), np.array([env]), np.array(numbers)[:, None])
        assert [(played.episode, played.actions.tolist()) for played in finished] == expected
        assert all(played.env == env for played in finished)


def report(
    env: int, episode: int, seed: int, length: float = LENGTH, value: float = 0.0
) -> dict[str, float]:
    return {
        "env": env,
        "episode": episode,
        "seed": seed,
        "return": value,
        "length": length,
        "success": value,
    }


def play(recorder: EpisodeRecorder, env: int, episode: int, answer: int) -> None:
    """One environment plays an episode of Recall in one batch."""
    ended = [0] * (LENGTH - 1) + [1]
    rows = column([0] * (LENGTH - 1) + [answer], [0] * LENGTH, ended)
    recorder.take(rows, np.array([env]), np.full((LENGTH, 1), episode))


def wrong_answer(seed: int) -> int:
    games = (
        record_actions("Recall-v0", OPTIONS, seed, np.array([0] * (LENGTH - 1) + [n]))
        for n in range(4)
    )
    return [game.info["return"] for game in games].index(0.0)


def name(step: int, env: int, episode: int) -> str:
    return f"step-{step:012d}-env-{env:05d}-episode-{episode:06d}.json"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "recordings").glob("*"))


def test_only_whole_episodes_that_play_the_same_way_are_recorded(tmp_path: Path, capfd) -> None:
    wrong = wrong_answer(3)
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
    assert names(tmp_path) == [name(40, 0, 1), name(70, 5, 4)]
    line = "episode-000003.json is not recorded: seed 3 does not play the same way twice (return, success)"
    assert line in capfd.readouterr().err


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

    monkeypatch.setattr(episode_recorder, "WorkerProcess", Mortal)
    wrong = wrong_answer(3)
    with EpisodeRecorder(tmp_path, "Recall-v0", OPTIONS, 1) as recorder:
        for episode in range(3):
            play(recorder, 0, episode, wrong)
            recorder.report(10 * episode, [report(0, episode, 3)])
    assert names(tmp_path) == [name(10, 0, 1), name(20, 0, 2)]
    assert len(started) == 2
    assert "is not recorded: the process that played it again died" in capfd.readouterr().err


def test_recordings_of_games_that_are_played_again_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    for file in (name(100, 0, 1), name(101, 0, 1), "mine.json"):
        (folder / file).write_text("{}")
    drop_recordings(tmp_path, 100)
    assert names(tmp_path) == ["mine.json", name(100, 0, 1)]
    drop_recordings(tmp_path, None)
    assert names(tmp_path) == ["mine.json"]


def test_games_that_come_too_fast_are_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode_recorder, "MAX_WAITING", 0)
    with EpisodeRecorder(tmp_path, "Recall-v0", OPTIONS, 2) as recorder:
        for episode in range(4):
            play(recorder, 0, episode, 0)
            recorder.report(10, [report(0, episode, 3)])
    line = "2 episodes were not recorded: they came faster than they could be replayed; a larger record_every than 2 leaves none out\n"
    assert capfd.readouterr().err == line
    assert names(tmp_path) == []


class DeadProcess:
    """A `WorkerProcess` that takes orders and dies before each answer; `closed` counts those that
    were closed.
    """

    closed = 0

    def __init__(self, *arguments: Any) -> None:
        self.connection = self

    def send(self, order: Any) -> None:
        pass

    def receive(self) -> str:
        raise EOFError

    def close(self) -> None:
        DeadProcess.closed += 1


def test_a_process_that_always_dies_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeadProcess, "closed", 0)
    monkeypatch.setattr(episode_recorder, "WorkerProcess", DeadProcess)

    def record() -> None:
        with EpisodeRecorder(tmp_path, "Recall-v0", OPTIONS, 1) as recorder:
            for episode in range(3):
                assert DeadProcess.closed == episode
                play(recorder, 0, episode, 0)
                recorder.report(10, [report(0, episode, 3)])
                wait(recorder.waiting)

    with pytest.raises(
        ServiceFailedError, match=r"^the recordings thread failed: .* died 3 times in a row$"
    ):
        record()

    assert DeadProcess.closed == 3


@pytest.mark.extra
def test_a_training_leaves_recordings_of_its_games(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of games whose batches still waited when the training ended, too."""
    reward = RewardKind()
    monkeypatch.setattr(reward, "lookup", lambda texts: Values(np.ones(len(texts), np.float32), 0))
    monkeypatch.setattr(intrinsic, "load_intrinsic", lambda *_: reward)
    changes = {"serial": False, "record_every": 2, "save_every_steps": 1, "keep_checkpoints": 2}
    config = recall_config(train_for_env_steps=600, **changes)
    train(tmp_path, config)
    assert len(steps_of(tmp_path)) in (2, 3), "the two newest, and the best where it is another"
    lines = episodes(tmp_path)
    chosen = [row for row in lines if (row["env"] + row["episode"]) % 2 == 0]
    expected = {name(row["step"], row["env"], row["episode"]): row for row in chosen}
    recorded = {file: Recording.load(tmp_path / "recordings" / file) for file in names(tmp_path)}
    assert len(recorded) > 25
    for file, recording in recorded.items():
        row = expected[file]
        assert (
            recording.seed == row["seed"] == episode_seed(config.seed, row["env"], row["episode"])
        )
        again = record_actions(recording.task, recording.options, recording.seed, recording.actions)
        assert again.digest == recording.digest
        assert again.info == {key: row[key] for key in again.info}
    # A resumed run goes on counting games: none is played twice.
    train(tmp_path, recall_config(train_for_env_steps=900, **changes))
    played = [(row["env"], row["episode"]) for row in episodes(tmp_path)]
    assert len(set(played)) == len(played) > len(lines)
