"""Cores that trainings claim for their actors, and that their other threads leave alone."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from motif_jax.rl.actors import cores
from motif_jax.rl.actors.cores import Cores, OwnCores
from motif_jax.rl.actors.pool import ActorPool
from tests.rl.actors.pool_test import config, play


def test_trainings_side_by_side_keep_to_different_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "os", SimpleNamespace(**{**vars(os), "getuid": lambda: f"test_{os.getpid()}"}))
    usable = os.sched_getaffinity(0)
    first = Cores(1)
    second = Cores(1)
    assert set(first.numbers) <= usable
    assert len(first.numbers) == (1 if len(usable) > 1 else 0)
    assert not set(first.numbers) & set(second.numbers)
    # A core that is given back can be claimed again.
    claimed = first.numbers
    first.close()
    third = Cores(1)
    assert third.numbers == claimed
    # One core is always left for everything else.
    assert Cores(len(usable)).numbers == ()
    second.close()
    third.close()


def test_actors_run_on_the_cores_of_the_config() -> None:
    core = min(os.sched_getaffinity(0))
    with ActorPool(config(cores=[core, core])) as pool:
        pool.start()
        play(pool, lambda: min(pool.next_episode()) > 0)
        assert {frozenset(os.sched_getaffinity(pid)) for pid in pool.pids()} == {frozenset({core})}
        assert os.sched_getaffinity(0) >= {core}


def test_threads_keep_off_the_actors_cores_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    affinity = {thread: {0, 1, 2, 3} for thread in os.listdir("/proc/self/task")}
    stand_in = SimpleNamespace(
        listdir=lambda folder: list(affinity),
        sched_getaffinity=lambda thread: {0, 1, 2, 3},
        sched_setaffinity=lambda thread, numbers: affinity.update({str(thread): set(numbers)}),
    )
    monkeypatch.setattr(cores, "os", stand_in)
    own_cores = OwnCores([2, 3])
    assert own_cores.numbers == (0, 1)
    assert all(numbers == {0, 1} for numbers in affinity.values())
    own_cores.close()
    assert all(numbers == {0, 1, 2, 3} for numbers in affinity.values())


@pytest.mark.parametrize("actor_cores", [(), (1, 2, 3)])
def test_threads_stay_on_all_cores_where_few_are_left(
    actor_cores: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[int] = []
    stand_in = SimpleNamespace(
        listdir=lambda folder: ["1"],
        sched_getaffinity=lambda thread: {0, 1, 2, 3},
        sched_setaffinity=lambda thread, numbers: moved.append(thread),
    )
    monkeypatch.setattr(cores, "os", stand_in)
    OwnCores(actor_cores).close()
    assert not moved
