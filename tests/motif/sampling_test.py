from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import Interruption
from motif_jax.envs import registry
from motif_jax.envs.nethack.random_players import HABITS
from motif_jax.motif import sampling
from motif_jax.motif.annotation.captions import caption
from motif_jax.motif.pairs import chunks
from motif_jax.motif.sampling import (
    EpisodeJob,
    History,
    ReplayedActions,
    SamplingPlan,
    caption_keys,
)
from motif_jax.rl.actors.processes import MAX_DEATHS
from tests.toys import Talker

# Nobody asks it to stop.
RUNNING = Interruption()


def plan_in(folder):
    options = {"max_episode_steps": 150, "fields": ("tty_chars",)}
    fields = ("message", "blstats", "tty_chars")
    return SamplingPlan(
        "NetHackScore-v1", options, fields, seed=3, length=2, share=1.0, folder=str(folder)
    )


def job(index, policy=None):
    return EpisodeJob(index, seeds.derive(3, "episode", index), 0, policy or HABITS["walker"])


def contents(folder):
    return {
        episode: chunks.load(folder, episode, count)
        for episode, count in chunks.scan(folder).items()
    }


def test_a_history_that_grew_holds_what_a_roomy_one_does(monkeypatch):
    monkeypatch.setattr("motif_jax.motif.sampling.FIRST_CAPACITY", 3)
    environment = registry.make("NetHackScore-v1", max_episode_steps=40)
    small = History(environment)
    monkeypatch.undo()
    large = History(environment)

    for seed in (1, 2):
        grown = dict(small.play(seed, HABITS["runner"])[0])
        roomy = dict(large.play(seed, HABITS["runner"])[0])
        assert len(grown["rewards"]) > 3
        np.testing.assert_equal(grown, roomy)
    environment.close()


def test_replayed_actions_are_taken_again_until_they_end():
    choose = ReplayedActions(np.array([3, 0, 22])).player(0, registry.spec("NetHackScore-v1"))

    assert [choose({}) for _ in range(3)] == [3, 0, 22]
    with pytest.raises(StopIteration):
        choose({})


def test_a_player_without_actions_ends_the_episode_with_an_error():
    environment = registry.make("NetHackScore-v1", max_episode_steps=40)
    with pytest.raises(RuntimeError, match="no more actions"):
        History(environment).play(1, ReplayedActions(np.zeros(2, int)))
    environment.close()


def test_caption_keys_compare_captions():
    messages = np.zeros((4, 2, 256), np.uint8)
    messages[..., 0] = np.frombuffer(b"a\0\0ab\0aa", np.uint8).reshape(4, 2)
    keys = caption_keys(messages).tolist()
    texts = [caption(message) for message in messages]
    assert [keys[i] == keys[j] for i in range(4) for j in range(4)] == [
        a == b for a in texts for b in texts
    ]
    assert keys[0] == keys[1] != keys[3]


@pytest.mark.slow
def test_killed_processes_are_replaced(tmp_path):
    for name, workers, kills in (("one", 1, 0), ("killed", 2, 1)):
        folder = tmp_path / name
        folder.mkdir()
        for number, result in enumerate(
            sampling.record(map(job, range(12)), plan_in(folder), workers, RUNNING)
        ):
            if number < kills:
                os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
            assert not result.left_out
    assert chunks.scan(tmp_path / "one").keys() == set(range(12))
    np.testing.assert_equal(contents(tmp_path / "one"), contents(tmp_path / "killed"))
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_episode_that_kills_every_process_is_left_out(tmp_path, capfd):
    jobs = iter([job(0), job(1), job(2, ReplayedActions(np.zeros(3, int))), job(3)])
    results = {r.job.index: r for r in sampling.record(jobs, plan_in(tmp_path), 2, RUNNING)}
    assert {index for index, result in results.items() if result.left_out} == {2}
    counts = chunks.scan(tmp_path)
    assert counts[2] == 0
    assert min(counts[index] for index in (0, 1, 3)) > 0
    assert capfd.readouterr().err.count("EngineError: the player had no more") == MAX_DEATHS


@pytest.mark.extra
def test_deaths_in_the_first_episode_end_a_fresh_collection(tmp_path, capfd):
    jobs = [job(0, ReplayedActions(np.zeros(3, int)))]
    with pytest.raises(UserError, match="die before they have played one episode"):
        list(sampling.record(iter(jobs), plan_in(tmp_path), 1, RUNNING))
    (result,) = sampling.record(iter(jobs), plan_in(tmp_path), 1, RUNNING, has_episodes=True)
    assert result.left_out
    assert "no more actions" in capfd.readouterr().err


def test_recording_processes_are_light():
    """They, those that play for evaluations, and the stage without agents run on numpy alone."""
    code = "import sys, motif_jax.motif.collect, motif_jax.play.episodes; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"jax", "flax", "optax", "orbax", "matplotlib"} & set(done.stdout.split())


def test_a_stop_leaves_nothing_in_the_temporary_directory(tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    folder = tmp_path / "chunks"
    temporary.mkdir()
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    stop = Interruption()
    for _ in sampling.record(map(job, range(1000)), plan_in(folder), 2, stop):
        assert list(temporary.iterdir()), "games of processes at work"
        stop.requested = True
    assert not list(temporary.iterdir())
    assert 0 < len(chunks.scan(folder)) < 1000
    assert not multiprocessing.active_children()


class Unbounded(Talker):
    """Pays without a bound in its third step."""

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        _, end = super().step(action, out)
        return np.inf if self._steps == 3 else 0.0, end


def test_an_infinite_reward_is_refused_with_its_episode(tmp_path, monkeypatch) -> None:
    name = f"{__name__}:Unbounded"
    monkeypatch.setenv("MOTIF_JAX_TRUST", name)
    plan = SamplingPlan(
        name, {}, ("message", "blstats"), seed=3, length=2, share=1.0, folder=str(tmp_path)
    )

    with pytest.raises(
        UserError,
        match="the reward in row 3 of the episode with seed 11 is inf: a dataset holds finite",
    ):
        sampling.Sampler({"plan": plan}).answer(EpisodeJob(0, 11, 0, HABITS["walker"]))

    assert not contents(tmp_path)
