from __future__ import annotations

import contextlib
import itertools
import os
import statistics
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from motif_jax.actors import cores, member, tuning
from motif_jax.actors.cores import Cores
from motif_jax.actors.member import COMMAND, RECORD
from motif_jax.actors.pool import ActorPool
from motif_jax.actors.rings import Rings
from motif_jax.actors.rollouts import END_ROW
from motif_jax.actors.slots import Slots
from motif_jax.actors.teams import members
from tests.actors.pool_test import config, wait_for_groups


@pytest.mark.parametrize(
    ("envs", "games"), list(itertools.product([1, 2, 3, 7, 10, 20], [1, 2, 3, 4, 5, 100]))
)
def test_a_ring_plays_every_game_once_with_as_few_processes_as_allowed(envs: int, games: int) -> None:
    all_members = members(config(envs_per_group=envs, games_per_process=games))
    assert [member.number for member in all_members] == list(range(len(all_members)))
    for group, ring in itertools.groupby(all_members, lambda member: member.group):
        found = list(ring)
        assert [column for m in found for column in range(m.start, m.stop)] == list(range(envs))
        sizes = [m.stop - m.start for m in found]
        assert len(found) == -(-envs // games)
        assert max(sizes) - min(sizes) <= 1
        assert [m.place for m in found] == list(range(len(found)))
        assert [m.is_last for m in found] == [False] * (len(found) - 1) + [True]
        assert {m.worker for m in found} == {group // 2}


@contextlib.contextmanager
def round_of(
    monkeypatch: pytest.MonkeyPatch, told: Callable[[bytes], None], step: Callable[[], None]
) -> Iterator[tuple[Slots, Rings]]:
    """A group that plays one round when this ends, alone in its process; `told` hears its record, `step` its step."""
    settings = config(workers=1, games_per_process=3)  # two groups of one process each
    slots, rings, (first, _) = Slots.create(settings.layout()), Rings(settings), members(settings)
    slots.generation[...] = 0
    yield slots, rings
    os.write(rings.first[0], COMMAND.pack(0, 1, 2) + COMMAND.pack(0, 0, END_ROW))
    games = SimpleNamespace(step=lambda slot, row: step())
    orders = {**rings.descriptors(first), "records": -5}
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, record: told(record))
        assert member._play_rounds(settings, first, games, slots, orders)  # type: ignore[arg-type]


def test_a_group_has_given_its_turn_back_when_it_tells_of_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to what it tells may come at once: the turn that is taken for that one would be given back instead."""
    free: list[bool] = []

    def told(record: bytes) -> None:
        assert RECORD.unpack(record) == (0, 0, 1, 3)
        free.append(rings.take_turn(1))

    with round_of(monkeypatch, told, lambda: free.append(rings.take_turn(1))) as (_, rings):
        pass
    assert free == [False, True]
    rings.close(b"")


def test_a_round_that_a_process_has_died_in_gives_no_later_ones_turn_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the last process still plays it, the first one may have taken the turn for the next round already."""

    def died() -> None:
        slots.generation[0] = 1
        rings.give_back_turn(0)
        assert rings.take_turn(0)

    def told(record: bytes) -> None:
        pytest.fail("it told of the round")

    with round_of(monkeypatch, told, died) as (slots, rings):
        pass
    assert not rings.take_turn(1)
    rings.close(b"")


def test_a_round_from_before_a_death_is_not_played_and_keeps_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(record: bytes = b"") -> None:
        pytest.fail("it was played")

    with round_of(monkeypatch, never, never) as (slots, rings):
        slots.generation[0] = 1
    assert rings.take_turn(1)
    rings.close(b"")


def test_trainings_side_by_side_keep_to_different_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core is given once, and given back."""
    # Names of the test's own: trainings of other tests come and go meanwhile.
    monkeypatch.setattr(cores, "os", SimpleNamespace(**{**vars(os), "getuid": lambda: f"test_{os.getpid()}"}))
    usable = os.sched_getaffinity(0)
    first, second = Cores(1), Cores(1)
    assert set(first.numbers) <= usable
    assert len(first.numbers) == (1 if len(usable) > 1 else 0)
    assert not set(first.numbers) & set(second.numbers)
    taken = first.numbers
    first.close()
    third = Cores(1)
    assert third.numbers == taken
    assert Cores(len(usable)).numbers == (), "one core is left for everything else"
    second.close()
    third.close()


def test_actors_keep_to_the_cores_that_they_are_given() -> None:
    core = min(os.sched_getaffinity(0))
    with ActorPool(config(cores=[core, core])) as pool:
        pool.start()
        wait_for_groups(pool, 4)
        assert {frozenset(os.sched_getaffinity(pid)) for pid in pool.pids()} == {frozenset({core})}
        assert os.sched_getaffinity(0) >= {core}


@pytest.mark.slow
def test_auto_tries_sizes_and_takes_the_best_of_them(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuning, "_SECONDS", 0.02)
    tried: dict[int, list[float]] = {}
    cost = tuning._Trial.cost

    def told(trial: tuning._Trial) -> float:
        found = cost(trial)
        tried.setdefault(trial._config.games_per_process, []).append(found)  # type: ignore[arg-type]
        return found

    monkeypatch.setattr(tuning._Trial, "cost", told)
    with ActorPool(config(games_per_process=None, seed=123)) as pool:
        said = pool.prepare()
    middle = {size: statistics.median(found[1:]) for size, found in tried.items()}
    best = min(middle, key=lambda size: middle[size])
    assert [*tried] == [2, 3]
    assert {len(found) for found in tried.values()} == {tuning._TURNS + 1}
    assert min(middle.values()) > 0
    assert said.startswith(f"at most {best} games in a process")
    assert f"actors: {best} games a process" in capfd.readouterr().err
