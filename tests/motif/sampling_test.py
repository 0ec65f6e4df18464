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
from motif_jax.envs.episode import EpisodePlayer
from motif_jax.envs.nethack.random_players import HABITS
from motif_jax.motif import sampling
from motif_jax.motif.annotation.captions import caption
from motif_jax.motif.pairs import chunks
from motif_jax.motif.sampling import SamplingPlan, caption_keys
from motif_jax.rl.actors.episodes import EpisodeJob
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


def job(index, actions=None):
    return EpisodeJob(index, seeds.derive(3, "episode", index), 0, actions)


def record(jobs, folder, workers, stop=RUNNING, has_episodes=False):
    policies = [HABITS["walker"]]
    return sampling.record(jobs, policies, plan_in(folder), workers, stop, has_episodes)


def contents(folder):
    return {
        episode: chunks.load(folder, episode, count)
        for episode, count in chunks.scan(folder).items()
    }


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
        for number, result in enumerate(record(map(job, range(12)), folder, workers)):
            if number < kills:
                os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
            assert not result.left_out
    assert chunks.scan(tmp_path / "one").keys() == set(range(12))
    np.testing.assert_equal(contents(tmp_path / "one"), contents(tmp_path / "killed"))
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_episode_that_kills_every_process_is_left_out(tmp_path, capfd):
    jobs = iter([job(0), job(1), job(2, np.zeros(3, int)), job(3)])
    results = {r.job.index: r for r in record(jobs, tmp_path, 2)}
    assert {index for index, result in results.items() if result.left_out} == {2}
    counts = chunks.scan(tmp_path)
    assert counts[2] == 0
    assert min(counts[index] for index in (0, 1, 3)) > 0
    assert capfd.readouterr().err.count("EngineError: the player had no more") == MAX_DEATHS


@pytest.mark.extra
def test_deaths_in_the_first_episode_end_a_fresh_collection(tmp_path, capfd):
    jobs = [job(0, np.zeros(3, int))]
    with pytest.raises(UserError, match="die before they have played one episode"):
        list(record(iter(jobs), tmp_path, 1))
    (result,) = record(iter(jobs), tmp_path, 1, has_episodes=True)
    assert result.left_out
    assert "no more actions" in capfd.readouterr().err


def test_recording_processes_are_light():
    """They, those that play for evaluations, and the stage without agents run on numpy alone."""
    code = "import sys, motif_jax.motif.collect, motif_jax.rl.actors.episodes; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"jax", "flax", "optax", "orbax", "matplotlib"} & set(done.stdout.split())


def test_a_stop_leaves_nothing_in_the_temporary_directory(tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    folder = tmp_path / "chunks"
    temporary.mkdir()
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    stop = Interruption()
    for _ in record(map(job, range(1000)), folder, 2, stop):
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

    environment = registry.make(name)
    choose = HABITS["walker"].player(11, environment.spec)
    episode = EpisodePlayer(environment, plan.kept_fields).play(11, choose)

    with pytest.raises(
        UserError,
        match="the reward in row 3 of the episode with seed 11 is inf: a dataset holds finite",
    ):
        sampling.write_chunk(plan, EpisodeJob(0, 11), episode)

    assert not contents(tmp_path)
