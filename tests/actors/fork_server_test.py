"""Actors that are forked from one process, and those that cannot be."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.actors import fork_server, launchers
from motif_jax.actors.pool import ActorPool
from tests.actors.pool_test import ROLLOUT, collect, config, play
from tests.processes import descendants, still_there, wait_until


def server_of(pool: ActorPool) -> int:
    """Process id of the one that the actors are children of."""
    [parent] = {
        int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pool.pids()
    }
    return parent


def engine_addresses(pid: int) -> list[str]:
    """Where the data of the engine's copies lie, in the order in which the games were made."""
    addresses = {}
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split()
        if fields[1].startswith("rw") and "nle.so" in line:
            addresses[int(fields[4])] = fields[0].partition("-")[0]
    # A game opens its copy once and keeps it; numbers of memory files say nothing, each processor has its own.
    opened = sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda path: int(path.name))
    copies = [path.stat().st_ino for path in opened if "nle.so" in os.readlink(path)]
    sizes = {path.stat().st_ino: path.stat().st_size for path in opened if "nle.so" in os.readlink(path)}
    return [addresses[copy] for copy in copies if sizes[copy] > 1 << 20]


def test_the_nth_game_has_its_engine_at_the_same_address_in_all_actors_also_in_a_new_one() -> None:
    """Also after many episodes, which are short here."""
    game = {"env": "NetHackScore-v1", "options": {"max_episode_steps": 5}, "envs_per_group": 4}
    with ActorPool(config(**game, games_per_process=2, mark_unwritten=False)) as pool:
        pool.start()
        play(pool, lambda: min(pool.next_episode()) > 3)
        os.kill(pool.pids()[2], signal.SIGKILL)
        play(pool, lambda: pool.restarts == 1)
        begun = pool.next_episode()
        play(pool, lambda: min(pool.next_episode()) > max(begun) + 2)
        wait_until_idle(pool)
        addresses = [engine_addresses(pid) for pid in pool.pids()]
    assert [len(set(of_one)) for of_one in addresses] == [2] * 8
    assert len(set(map(tuple, addresses))) == 1


def wait_until_idle(pool: ActorPool) -> None:
    """Returns when all actors wait for actions."""
    waiting: set[int] = set()
    while len(waiting) < pool.config.groups:
        waiting |= {entry.group for entry in pool.ready(0.2)}


@pytest.mark.slow
def test_actors_that_are_programs_of_their_own_write_the_same_rows() -> None:
    with ActorPool(config()) as pool, ActorPool(config(start_method="exec", games_per_process=2)) as other:
        assert "slower" not in pool.prepare()
        assert "slower" in other.prepare()
        pool.start()
        other.start()
        assert descendants(os.getpid()) >= set(other.pids())
        ours, theirs = collect(pool, 3), collect(other, 3)
    for group, slots in ours.items():
        for slot, second in zip(slots, theirs[group], strict=True):
            for name in slot:
                rows = slice(0, ROLLOUT if name in ("reward", "terminated", "truncated") else None)
                np.testing.assert_array_equal(slot[name][rows], second[name][rows], err_msg=f"{group} {name}")


@pytest.mark.parametrize("moment", ["playing", "forking"])
def test_another_server_is_started_when_it_was_killed_and_all_actors_are_renewed(
    moment: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ActorPool(config()) as pool:
        pool.start()
        play(pool, lambda: len(pool.episodes()) > 0)
        before, server = set(pool.pids()), server_of(pool)
        if moment == "playing":
            os.kill(server, signal.SIGKILL)
        else:  # when it is to fork one that is replaced
            start = launchers.ForkLauncher.start

            def killed(launcher: launchers.ForkLauncher, orders: Any) -> int:
                if launcher.pid == server:
                    os.kill(server, signal.SIGKILL)
                return start(launcher, orders)

            monkeypatch.setattr(launchers.ForkLauncher, "start", killed)
            os.kill(pool.pids()[0], signal.SIGKILL)
        play(pool, lambda: pool.restarts >= len(before) and not before & set(pool.pids()))
        wait_until(lambda: not still_there(before | {server}), "the end of the old ones", 90)
        begun = pool.next_episode()
        play(pool, lambda: min(pool.next_episode()) > max(begun) + 1)
        assert server_of(pool) != server
        after = set(pool.pids()) | {server_of(pool)}
    assert not still_there(after)
    assert "the process that actors are forked from died (signal 9)" in capfd.readouterr().err


def test_a_server_that_always_dies_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with ActorPool(config(max_failures=2)) as pool:
        pool.start()
        start = launchers.ForkLauncher.start

        def killed(launcher: launchers.ForkLauncher, orders: Any) -> int:
            os.kill(launcher.pid, signal.SIGKILL)
            return start(launcher, orders)

        monkeypatch.setattr(launchers.ForkLauncher, "start", killed)
        os.kill(server_of(pool), signal.SIGKILL)
        with pytest.raises(RuntimeError, match="died before a rollout was finished: signal 9"):
            play(pool, lambda: False)


@pytest.mark.parametrize("cause", ["threads", "addresses"])
def test_where_forks_are_of_no_use_actors_are_started_one_by_one_which_is_said(
    cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {}
    if cause == "threads":
        (tmp_path / "threaded.py").write_text(
            "import threading, time\n"
            "from motif_jax.envs.recall import Recall as Threaded\n"
            "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("MOTIF_JAX_TRUST", "threaded")
        changes = {"env": "threaded:Threaded"}
    else:
        monkeypatch.setattr(
            launchers, "no_use_of_forks", lambda: "forked processes have different addresses here"
        )
    with ActorPool(config(workers=1, **changes)) as pool:
        said = pool.prepare()
        assert said.startswith("at most 4 games in a process, started one by one, which is slower (")
        assert ("has started 1 threads" if cause == "threads" else "different addresses") in said
        pool.start()
        play(pool, lambda: len(pool.episodes()) > 0)


def test_the_server_has_loaded_what_the_environment_names() -> None:
    import sys

    preload: Callable[[Any], None] = fork_server.preload
    preload(config(env="NetHackScore-v1", options={}))
    assert {"motif_jax.envs.nethack.engine", "motif_jax.envs.nethack.group"} <= set(sys.modules)
