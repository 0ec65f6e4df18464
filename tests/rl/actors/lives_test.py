"""Actor processes that die, hang or cannot start, and the files that they leave."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import util
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import psutil
import pytest

from motif_jax.core import tempdirs
from motif_jax.core.files import system_error
from motif_jax.envs.recall import Recall
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.rl.actors import pool as pool_module
from motif_jax.rl.actors import processes
from motif_jax.rl.actors.actor import SlotGroup
from motif_jax.rl.actors.pool import ActorPool
from motif_jax.rl.actors.processes import ParentGoneError
from motif_jax.rl.actors.rollouts import ActorsConfig, Ready
from motif_jax.rl.actors.slots import Slots
from tests.processes import still_there, wait_until
from tests.rl.actors.pool_test import act, config, play, playing
from tests.rl.actors.pool_time import PoolTime


def test_workers_that_nobody_reads_are_not_taken_for_dead(pool_time: PoolTime) -> None:
    with ActorPool(config(workers=1, start_timeout_seconds=240.0)) as pool:
        pool.start()
        wait_until(lambda: all(process.is_up for process in pool.processes), "all are up")

        pool_time.leap(pool)

        play(pool, lambda: len(pool.episodes()) > 0)
        assert pool.restarts == 0


def test_a_new_process_ignores_commands_of_the_previous_one() -> None:
    """A call of inference that began before the death sends its actions after it."""
    times = {"timeout_seconds": 5.0, "start_timeout_seconds": 240.0}
    with ActorPool(config(workers=1, groups_per_worker=1, **times)) as pool:
        pool.start()
        play(pool, lambda: len(pool.episodes()) > 0)
        os.kill(pool.pids()[0], signal.SIGKILL)
        wait_until(lambda: pool.restarts == 1, "another process")
        pool.commanded_at[0] = pool.clock
        pool.all_read_at = pool.clock + 1000.0  # as if other groups had been read meanwhile

        wait_until(lambda: pool.processes[0].is_up, "it is up")
        time.sleep(0.5)  # some looks at the processes

        pool.all_read_at = pool.clock
        play(pool, lambda: len(pool.episodes()) > 0)
        assert pool.restarts == 1


def test_a_killed_process_is_replaced_and_its_unfinished_slot_dropped() -> None:
    with ActorPool(config()) as pool:
        pool.start()
        play(pool, lambda: min(pool.next_episode()) > 2)
        episodes = pool.episodes()
        before = pool.pids()
        victim = before[1]

        os.kill(victim, signal.SIGKILL)

        play(pool, lambda: pool.restarts == 1 and pool.dropped_slots == 1)

        after = pool.pids()
        assert victim not in after
        assert [*after[:1], *after[2:]] == [*before[:1], *before[2:]]

        # All groups go on, and no episode is played twice.
        next_episode = pool.next_episode()
        finished = play(pool, lambda: min(pool.next_episode()) > max(next_episode) + 4)
        assert {pool.group_of(slot) for slot in finished} == set(range(4))
        assert (pool.restarts, pool.dropped_slots) == (1, 1)
        played = [(e["env"], e["episode"]) for e in episodes + pool.episodes() if e["env"] < 3]
        assert len(set(played)) == len(played)
    assert not still_there({victim, *after})


def test_a_process_that_dies_with_full_slots_drops_none() -> None:
    full: list[int] = []
    settings = config(workers=1, groups_per_worker=1, slots_per_group=2)
    with ActorPool(settings, on_finished=full.append) as pool:
        pool.start()
        while len(full) < 2:
            act(pool, pool.ready(0.2))
        os.kill(pool.pids()[0], signal.SIGKILL)
        while not pool.restarts:
            assert pool.ready(0.2) == []
        pool.release(full[0])
        wait_until(lambda: pool.ready(0.2) == [Ready(0, full[0], 0)], "a new process begins")
        assert pool.dropped_slots == 0


def test_a_warm_up_ends_when_nobody_reads_the_rows() -> None:
    settings = config()
    slots = Slots.create(settings.layout())
    slots.next_episode[...] = 0
    games = SlotGroup(settings, slots, 0, lambda episode: None)
    games.abandoned = lambda: True

    with pytest.raises(ParentGoneError):
        games.reset(0, 10**6)

    games.close()
    slots.close()


def assert_renewed(pool: ActorPool, before: set[int], server: int) -> None:
    """Plays until all actors, of the ids `before`, have successors that another server has
    forked.
    """
    play(pool, lambda: pool.restarts >= len(before) and not before & set(pool.pids()))
    wait_until(lambda: not still_there(before | {server}), "the end of the old ones", 90)
    next_episode = pool.next_episode()
    play(pool, lambda: min(pool.next_episode()) > max(next_episode) + 1)
    assert server not in {psutil.Process(pid).ppid() for pid in pool.pids()}


@pytest.mark.slow
def test_actors_whose_server_was_killed_are_renewed(capfd: pytest.CaptureFixture[str]) -> None:
    with playing(config()) as pool:
        before = set(pool.pids())
        server = psutil.Process(pool.pids()[0]).ppid()

        os.kill(server, signal.SIGKILL)

        assert_renewed(pool, before, server)
        after = set(pool.pids())
    assert not still_there(after)
    assert "the process that it was forked from died" in capfd.readouterr().err


@pytest.mark.slow
def test_a_server_that_dies_before_it_forks_is_replaced(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with playing(config()) as pool:
        before = set(pool.pids())
        server = psutil.Process(pool.pids()[0]).ppid()
        start = BaseProcess.start

        def kill_and_start(process: BaseProcess) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
            start(process)

        monkeypatch.setattr(BaseProcess, "start", kill_and_start)

        os.kill(pool.pids()[0], signal.SIGKILL)

        assert_renewed(pool, before, server)
        after = set(pool.pids())
    assert not still_there(after)
    assert "the process that it was forked from died" in capfd.readouterr().err


def test_pools_that_fork_together_leave_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = dict(os.environ)

    def start(delay: float) -> dict[str, str]:
        time.sleep(delay)
        with pool_module.one_thread() as variables:
            time.sleep(0.2)
        return variables

    with ThreadPoolExecutor(2) as threads:
        variables = list(threads.map(start, (0.0, 0.1)))

    assert dict(os.environ) == before
    assert variables == [before, before]


@pytest.mark.slow
def test_actors_that_cannot_be_forked_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with playing(config(workers=1)) as pool:
        monkeypatch.setattr(BaseProcess, "start", Mock(side_effect=EOFError("unexpected EOF")))
        monkeypatch.setattr(processes, "PAUSE_SECONDS", 0.0)

        os.kill(pool.pids()[0], signal.SIGKILL)
        with pytest.raises(RuntimeError, match="the actors cannot continue: unexpected EOF"):
            play(pool, lambda: False)


class Fragile(Recall):
    """Has its trouble once there is a file of that name; a stuck one makes the file."""

    def __init__(self, name: str, trouble: str, file: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._trouble = trouble
        self._file = Path(file)
        if trouble == "stuck":
            with contextlib.suppress(FileExistsError):
                self._file.touch(exist_ok=False)
                time.sleep(1e6)
        if trouble == "broken" and self._file.exists():
            raise ValueError("this engine is broken")

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        if self._trouble == "hangs" and self._file.exists():
            self._file.unlink()
            time.sleep(1e6)
        return super().step(action, out)

    def reset(self, seed: int, out: Mapping[str, np.ndarray]) -> None:
        if self._trouble == "full disk" and self._file.exists():
            try:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._file))
            except OSError as error:
                raise RuntimeError("the game cannot be saved") from error
        super().reset(seed, out)

    @staticmethod
    def make_spec(
        name: str, *arguments: Any, trouble: str = "", file: str = "", **options: Any
    ) -> EnvironmentSpec:
        return Recall.make_spec(name, *arguments, **options)


def fragile(trouble: str, file: Path, **changes: Any) -> ActorsConfig:
    """One worker; of its two groups, one is stuck."""
    options = {"delay": 2, "trouble": trouble, "file": str(file)}
    return config(workers=1, env="tests.rl.actors.lives_test:Fragile", options=options, **changes)


def test_a_worker_that_hangs_before_it_is_up_is_dead(
    tmp_path: Path, capfd: Any, pool_time: PoolTime
) -> None:
    patient = {"timeout_seconds": 1e6, "start_timeout_seconds": 240.0}
    with ActorPool(fragile("stuck", tmp_path / "made", **patient)) as pool:
        pool.start()
        wait_until(lambda: any(process.is_up for process in pool.processes), "the other is up")

        pool_time.ahead = 1000.0

        play(pool, lambda: pool.restarts == 1)
        play(pool, lambda: len(pool.episodes()) > 0)
        assert pool.restarts == 1
    assert "it was not up after 240 seconds" in capfd.readouterr().err


@pytest.mark.slow
def test_a_silent_worker_is_taken_for_dead(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hang = tmp_path / "hang"
    with playing(fragile("hangs", hang, groups_per_worker=1, timeout_seconds=2.0)) as pool:
        hang.touch()

        play(pool, lambda: pool.restarts == 1)
        play(pool, lambda: len(pool.episodes()) > 0)
    assert "it did not answer for 2 seconds" in capfd.readouterr().err


@pytest.mark.slow
def test_a_broken_actor_ends_the_run_with_its_traceback(tmp_path: Path) -> None:
    with playing(fragile("broken", tmp_path / "broken", max_failures=2)) as pool:
        (tmp_path / "broken").touch()

        os.kill(pool.pids()[0], signal.SIGKILL)
        with pytest.raises(RuntimeError, match="this engine is broken"):
            play(pool, lambda: False)


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["auto", "exec"])
def test_an_actors_full_disk_ends_the_run_at_once(
    tmp_path: Path, start_method: str, capfd: Any
) -> None:
    full = tmp_path / "full"
    with playing(fragile("full disk", full, start_method=start_method)) as pool:
        full.touch()
        with pytest.raises(RuntimeError, match="No space left") as raised:
            play(pool, lambda: False)

    message = f"{full} cannot be written: No space left on device"
    assert str(system_error(raised.value, ".")).startswith(message)
    assert pool.restarts == 0
    assert "Traceback" not in capfd.readouterr().err


def test_files_of_engines_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes remove those of a killed process; a dismissed process removes those of its
    engine itself.
    """
    with tempdirs.own_folders():
        util.get_temp_dir()  # that of this process lies elsewhere
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(processes, "CLOSE_SECONDS", 240.0)  # none is killed that only comes late
    game = {"env": "NetHackScore-v1", "options": {"max_episode_steps": 10}}
    with playing(config(workers=1, groups_per_worker=1, **game)) as pool:
        files = set(tmp_path.glob("*/*/*"))
        assert files

        os.kill(pool.pids()[0], signal.SIGKILL)

        play(pool, lambda: pool.restarts == 1 and len(pool.episodes()) > 0)
        assert not any(path.exists() for path in files)
        assert list(tmp_path.iterdir())
        monkeypatch.setattr(tempdirs, "remove_abandoned", lambda: None)
    assert list(tmp_path.iterdir()) == []
