from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from motif_jax.core import tempdirs
from motif_jax.rl.actors.actor import RECORD
from motif_jax.rl.actors.pool import ActorPool
from motif_jax.rl.actors.rollouts import ActorsConfig, Rollouts
from tests.processes import (
    REPOSITORY,
    descendants,
    still_there,
    unread,
    unused_shared_memory,
    wait_until,
)
from tests.rl.actors.pool_test import act, config, drive
from tests.rl.actors.pool_time import PoolTime

# Plays for ever; a line with the process ids of the actors for every line of input, the first when
# an episode has ended.
PARENT = """
import json, select, signal, sys
from motif_jax.rl.actors.pool import ActorPool
from motif_jax.rl.actors.rollouts import ActorsConfig

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda *_: None)
pool = ActorPool(ActorsConfig(**json.loads(sys.argv[1])), on_finished=lambda slot: pool.release(slot))
pool.start()
episodes = 0
while True:
    ready = pool.ready(0.2)
    for entry in ready:
        pool.slots.action[entry.slot, entry.row] = 0
    pool.act(ready)
    episodes += len(pool.episodes())
    if episodes and select.select([sys.stdin], [], [], 0)[0]:
        sys.stdin.readline()
        print(json.dumps({"pids": pool.pids(), "restarts": pool.restarts}), flush=True)
"""


@contextmanager
def playing(orders: ActorsConfig, **environment: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PARENT, json.dumps(dataclasses.asdict(orders))]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    variables = os.environ | environment
    parent = subprocess.Popen(
        command, **pipes, cwd=REPOSITORY, env=variables, start_new_session=True
    )
    try:
        yield parent
    finally:
        parent.kill()
        parent.communicate()


def asked(parent: Any) -> dict[str, Any]:
    parent.stdin.write("\n")
    parent.stdin.flush()
    return json.loads(parent.stdout.readline())


def test_workers_whose_answers_lie_unread_are_not_taken_for_dead(pool_time: PoolTime) -> None:
    # Without a word to the thread in `ready`: then nothing but answers lies in the pipe.
    with ActorPool(config(timeout_seconds=240.0, workers=1)) as pool:
        pool.start()
        drive(pool, lambda: len(pool.episodes()) > 0, lambda slot: Rollouts.release(pool, slot))
        ready = pool.ready(0.2)
        while not ready:
            ready = pool.ready(0.2)
        act(pool, ready)
        answers = pool.config.groups * RECORD.size
        wait_until(lambda: unread(pool.records) == answers, "the answers of all groups")

        pool_time.leap(pool)

        assert pool.ready(1.0)
        clock = pool.clock
        wait_until(lambda: pool.clock > clock + 0.5, "some more")
        assert pool.restarts == 0


def test_signals_to_the_group_of_processes_are_the_parents_alone() -> None:
    with playing(config()) as parent:
        before = asked(parent)
        children = descendants(parent.pid)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.killpg(parent.pid, number)
        time.sleep(0.5)  # a death is seen after a tenth of that
        assert asked(parent) == before == {"pids": before["pids"], "restarts": 0}
        assert [
            pid for pid in children if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        ] == []


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for temporary files whose name leaves room for that of the server's socket."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="s") as folder:
        yield Path(folder)


@pytest.mark.parametrize("name", ["a", "a" * 100])  # too long a name for the server's socket
def test_nothing_is_left_when_the_parent_is_killed(short: Path, name: str) -> None:
    temporary = short / name
    temporary.mkdir()
    shared_before = unused_shared_memory()
    orders = config(env="NetHackScore-v1", options={"max_episode_steps": 10})
    with playing(orders, TMPDIR=str(temporary)) as parent:
        assert len(asked(parent)["pids"]) == 4
        children = descendants(parent.pid)
        assert len(list(temporary.glob("*/*/*"))) > 0, (
            "the engine keeps files: they are to be removed"
        )
        parent.kill()
        parent.wait()
        wait_until(lambda: not still_there(children), "the workers' end, and their server's")
    wait_until(lambda: unused_shared_memory() <= shared_before, "no shared memory is left")
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("warmup", [{"warmup_steps": 10**7}, {"warmup_seconds": 1e4}])
def test_warming_up_ends_with_the_parent(warmup: dict[str, float]) -> None:
    with playing(config(workers=1, groups_per_worker=1, **warmup)) as parent:
        wait_until(
            lambda: len(descendants(parent.pid)) == 3, "the server, its tracker, and the actor"
        )
        time.sleep(2.0)
        children = descendants(parent.pid)
        parent.kill()
        killed = time.monotonic()
        wait_until(lambda: not still_there(children), "the actor's end")
        assert time.monotonic() - killed < 20, "below the kernel's 29 s"


def test_the_next_run_removes_what_a_kill_leaves(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with playing(config(), TMPDIR=str(short)) as parent:
        asked(parent)
        children = descendants(parent.pid)
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        wait_until(lambda: not still_there(children), "their end")
    assert list(short.iterdir())
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    tempdirs.remove_abandoned()
    assert list(short.iterdir()) == []
