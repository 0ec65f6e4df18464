"""Processes that die, hang or cannot work, and those that only seem to."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from motif_jax.actors import launchers
from motif_jax.actors import pool as pool_module
from motif_jax.actors.launchers import Death
from motif_jax.actors.lives import Lives
from motif_jax.actors.pool import ActorPool
from motif_jax.envs.recall import Recall
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.support.files import no_room
from tests.actors.pool_test import config, play
from tests.processes import still_there, wait_until


def clock_ahead(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Makes the clock of pools run ahead by the seconds that are written into what this returns."""
    ahead = [0.0]
    monkeypatch.setattr(pool_module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0]))
    monkeypatch.setattr(pool_module, "_LONGEST_LOOK_SECONDS", float("inf"))
    return ahead


def test_a_death_is_counted_once_and_says_why() -> None:
    lives = Lives(2)
    lives.begin(1, generation=3, clock=10.0)
    assert lives.is_up([0])
    assert not lives.is_up([0, 1])
    assert lives.late(14.0, seconds=5.0) == []
    assert lives.late(16.0, seconds=5.0) == [1]
    lives.came_up(1)
    assert lives.late(16.0, seconds=5.0) == []
    lives.blame(1, "it was too slow")
    assert lives.end(Death(1, generation=2, code=-9), works=False) is None, "of its predecessor"
    assert lives.end(Death(1, generation=3, code=-9), works=False) == "signal 9\nit was too slow"
    assert lives.end(Death(1, generation=3, code=1), works=False) == "exit code 1"
    assert lives.failures == [0, 2]
    lives.end(Death(1, generation=3, code=1), works=True)
    assert lives.failures == [0, 0]
    lives.blame(1, "the process that it was forked from died, and its end was not told")
    lives.begin(1, generation=4, clock=20.0)
    assert lives.end(Death(1, generation=4, code=-9), works=True) == "signal 9"


@pytest.mark.slow
def test_a_killed_process_is_replaced_in_its_ring_and_its_groups_unfinished_slot_is_dropped() -> None:
    with ActorPool(config(games_per_process=1)) as pool:
        pool.start()
        episodes: list[dict[str, float]] = []
        play(pool, lambda: min(pool.next_episode()) > 2)
        episodes += pool.episodes()
        before = pool.pids()
        victim = before[1]  # neither the first nor the last of the first group's ring
        os.kill(victim, signal.SIGKILL)
        play(pool, lambda: pool.restarts == 1 and pool.dropped_slots == 1)
        after = pool.pids()
        assert victim not in after
        assert [*after[:1], *after[2:]] == [*before[:1], *before[2:]]
        begun = pool.next_episode()
        finished = play(pool, lambda: min(pool.next_episode()) > max(begun) + 4)
        assert {pool.group_of(slot) for slot in finished} == set(range(4))
        assert (pool.restarts, pool.dropped_slots) == (1, 1)
        episodes = [e for e in episodes + pool.episodes() if e["env"] < 3]
        assert len({(e["env"], e["episode"]) for e in episodes}) == len(episodes), (
            "an episode was played twice"
        )
    assert not still_there({victim, *after})


def test_a_worker_that_hangs_before_it_is_up_is_taken_for_dead(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned: list[subprocess.Popen[bytes]] = []

    class Stopped(subprocess.Popen[bytes]):
        """The first one is stopped before it has got its orders: without them it is not up, however fast it starts."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if not spawned:
                self.send_signal(signal.SIGSTOP)
            spawned.append(self)

    monkeypatch.setattr(launchers.subprocess, "Popen", Stopped)
    ahead = clock_ahead(monkeypatch)
    patient = config(workers=1, timeout_seconds=1e6, start_timeout_seconds=240.0, start_method="exec")
    with ActorPool(patient) as pool:
        pool.start()
        wait_until(lambda: pool._lives.is_up(range(1, len(spawned))), "all others are up")
        ahead[0] = 1000.0
        play(pool, lambda: pool.restarts == 1)
        play(pool, lambda: len(pool.episodes()) > 0)
        assert pool.restarts == 1
    assert "it was not up after 240 seconds" in capfd.readouterr().err


def test_workers_that_nobody_reads_are_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inference compiles while the actors start, which may take long."""
    ahead = clock_ahead(monkeypatch)
    with ActorPool(config(workers=1, start_timeout_seconds=240.0)) as pool:
        pool.start()
        wait_until(lambda: pool._lives.is_up(range(len(pool.pids()))), "all are up")
        ahead[0] = 1000.0
        clock = pool._clock
        wait_until(lambda: pool._clock > clock + 1000.5, "some looks after that")
        play(pool, lambda: len(pool.episodes()) > 0)
        assert pool.restarts == 0


class Fails(Recall):
    """Cannot be made any more once there is a file of that name."""

    def __init__(self, name: str, broken: str, delay: int) -> None:
        super().__init__(name, delay=delay)
        if os.path.exists(broken):
            raise ValueError("this engine is broken")

    @staticmethod
    def make_spec(name: str, *given: Any, broken: str = "", **options: Any) -> EnvironmentSpec:
        return Recall.make_spec(name, *given, **options)


def test_an_actor_that_cannot_work_ends_the_run_with_its_traceback(tmp_path: Path) -> None:
    game = {
        "env": "tests.actors.lives_test:Fails",
        "options": {"delay": 2, "broken": str(tmp_path / "broken")},
    }
    with ActorPool(config(workers=1, max_failures=2, **game)) as pool:
        pool.start()
        play(pool, lambda: len(pool.episodes()) > 0)
        (tmp_path / "broken").touch()
        os.kill(pool.pids()[0], signal.SIGKILL)
        with pytest.raises(RuntimeError, match="this engine is broken"):
            play(pool, lambda: False)


class NoRoom(Recall):
    """Finds the disk full when its file is there."""

    def __init__(self, name: str, full: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._full = full

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        if os.path.exists(self._full):
            try:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._full)
            except OSError as error:
                raise RuntimeError("the game cannot be saved") from error
        super().reset(seed, out)

    @staticmethod
    def make_spec(name: str, *given: Any, full: str = "", **options: Any) -> EnvironmentSpec:
        return Recall.make_spec(name, *given, **options)


@pytest.mark.parametrize("start_method", ["fork", "exec"])
def test_a_full_disk_in_an_actor_ends_the_run_at_once(
    tmp_path: Path, start_method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    full = tmp_path / "full"
    game = {"env": "tests.actors.lives_test:NoRoom", "options": {"delay": 2, "full": str(full)}}
    with ActorPool(config(workers=1, start_method=start_method, **game)) as pool:
        pool.start()
        play(pool, lambda: len(pool.episodes()) > 0)
        full.touch()
        with pytest.raises(RuntimeError, match="No space left") as raised:
            play(pool, lambda: False)
    assert str(no_room(raised.value, ".")).startswith(f"{full} cannot be written: No space left on device")
    assert pool.restarts == 0
    assert "Traceback" not in capfd.readouterr().err


def test_files_of_a_killed_engine_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    game = {"env": "NetHackScore-v1", "options": {"max_episode_steps": 10}}
    with ActorPool(config(workers=1, **game)) as pool:
        pool.start()
        play(pool, lambda: len(pool.episodes()) > 0)
        files = set(tmp_path.glob("*/0/*"))
        os.kill(pool.pids()[0], signal.SIGKILL)
        play(pool, lambda: pool.restarts == 1 and len(pool.episodes()) > 0)
        assert files
        assert not any(path.exists() for path in files)
    assert list(tmp_path.iterdir()) == []
