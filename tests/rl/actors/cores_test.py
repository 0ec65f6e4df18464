"""Cores that trainings claim for their actors, and that their other threads leave alone."""

from __future__ import annotations

import os
from collections.abc import Collection

import pytest

from motif_jax.rl.actors import cores
from motif_jax.rl.actors.cores import ActorCores, ThreadCores
from motif_jax.rl.actors.pool import ActorPool
from tests.rl.actors.pool_test import config, play


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of four cores, where no training beside the tests claims any."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    # A claim's name holds the user's number.
    monkeypatch.setattr(os, "getuid", os.getpid)


@pytest.mark.usefixtures("four_cores")
def test_trainings_side_by_side_claim_different_cores() -> None:
    first = ActorCores(1)
    second = ActorCores(2)

    assert len(first.ids) == 1
    assert len(second.ids) == 2
    assert not set(first.ids) & set(second.ids)
    first.close()
    second.close()


@pytest.mark.usefixtures("four_cores")
def test_a_core_that_is_given_back_can_be_claimed_again() -> None:
    first = ActorCores(3)
    first_ids = first.ids
    assert ActorCores(1).ids == ()
    first.close()

    second = ActorCores(3)
    assert second.ids == first_ids
    second.close()


@pytest.mark.usefixtures("four_cores")
def test_one_core_is_always_left_unclaimed() -> None:
    assert ActorCores(4).ids == ()


def test_actors_run_on_the_cores_of_the_config() -> None:
    core = min(os.sched_getaffinity(0))
    with ActorPool(config(cores=[core, core])) as pool:
        pool.start()
        play(pool, lambda: min(pool.next_episode()) > 0)
        assert {frozenset(os.sched_getaffinity(pid)) for pid in pool.pids()} == {frozenset({core})}
        assert os.sched_getaffinity(0) >= {core}


class System:
    """Stands for the module `os` where threads are moved: three threads, at first on four cores.

    Attributes:
      affinity: the cores of each thread.
    """

    def __init__(self) -> None:
        self.affinity: dict[int, set[int]] = {thread: {0, 1, 2, 3} for thread in (11, 12, 13)}

    def listdir(self, folder: str) -> list[str]:
        assert folder == "/proc/self/task"
        return [str(thread) for thread in self.affinity]

    def sched_getaffinity(self, process: int) -> set[int]:
        return {0, 1, 2, 3}

    def sched_setaffinity(self, thread: int, numbers: Collection[int]) -> None:
        self.affinity[thread] = set(numbers)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    stand_in = System()
    monkeypatch.setattr(cores, "os", stand_in)
    return stand_in


def test_threads_keep_off_the_actors_cores(system: System) -> None:
    thread_cores = ThreadCores([2, 3])

    assert thread_cores.ids == (0, 1)
    assert list(system.affinity.values()) == [{0, 1}] * 3


def test_threads_return_to_all_cores_at_the_end(system: System) -> None:
    thread_cores = ThreadCores([2, 3])

    thread_cores.close()

    assert list(system.affinity.values()) == [{0, 1, 2, 3}] * 3


@pytest.mark.parametrize("actor_cores", [(), (1, 2, 3)])
def test_threads_stay_on_all_cores_where_few_are_left(
    actor_cores: tuple[int, ...], system: System
) -> None:
    thread_cores = ThreadCores(actor_cores)

    assert thread_cores.ids == ()
    assert list(system.affinity.values()) == [{0, 1, 2, 3}] * 3
