from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core.interruption import StoppedError
from motif_jax.rl.actors.inline import InlineActors
from motif_jax.rl.actors.pool import ActorPool
from motif_jax.rl.actors.rollouts import ActorsConfig, Ready, Rollouts
from motif_jax.rl.actors.slots import CARRIED_FIELDS, MAGIC
from tests.play.told import StopsAfter
from tests.processes import still_there
from tests.recorded_outputs import assert_matches_packed_recording, shown_array

ROLLOUT = 5


def config(**changes: object) -> ActorsConfig:
    values = {"env": "Recall-v0", "options": {"delay": 2}, "seed": 3, "workers": 2, "envs_per_group": 3}
    return ActorsConfig(**{**values, "rollout": ROLLOUT, **changes})


def act(actors: Rollouts, ready: list[Ready]) -> None:
    """Plays action 1; at a slot's begin it marks the rows that are to be written."""
    values = {"action": 1, "behaviour_log_prob": -0.5, "behaviour_value": 0.25, "parameter_version": 7}
    for entry in ready:
        if entry.row == 0:
            for array in actors.slots.arrays.values():
                array[entry.slot, 1:].view(np.uint8)[...] = MAGIC
        for name, value in values.items():
            actors.slots.arrays[name][entry.slot, entry.row] = value
    actors.act(ready)


def drive(actors: Rollouts, until: Callable[[], bool], on_finished: Callable[[int], None]) -> None:
    actors.on_finished = on_finished
    deadline = time.monotonic() + 240
    while not until():
        assert time.monotonic() < deadline, "the actors did not get there"
        act(actors, actors.ready(0.2))


def play(actors: Rollouts, until: Callable[[], bool]) -> list[int]:
    """Plays; returns the finished slots in order. They are released at once."""
    finished: list[int] = []

    def on_finished(slot: int) -> None:
        finished.append(slot)
        actors.release(slot)

    drive(actors, until, on_finished)
    return finished


@contextmanager
def playing(given: ActorsConfig) -> Iterator[ActorPool]:
    """A pool that has ended an episode."""
    with ActorPool(given) as pool:
        pool.start()
        play(pool, lambda: len(pool.episodes()) > 0)
        yield pool


def collect(actors: Rollouts, slots_per_group: int) -> dict[int, list[dict[str, np.ndarray]]]:
    content: dict[int, list[dict[str, np.ndarray]]] = {g: [] for g in range(actors.config.groups)}

    def on_finished(slot: int) -> None:
        rows = {name: array[slot].copy() for name, array in actors.slots.arrays.items()}
        content[actors.group_of(slot)].append(rows)
        actors.release(slot)

    drive(actors, lambda: min(map(len, content.values())) >= slots_per_group, on_finished)
    return {group: slots[:slots_per_group] for group, slots in content.items()}


VAULT = {"modules": "tests.gym_toys", "text": "info:said", "text_bytes": 32}
GYM = {"env": "gym:ToyVault-v0", "options": VAULT}


@pytest.mark.parametrize(
    ("start_method", "game"),
    [("fork", {}), pytest.param("exec", {}, marks=pytest.mark.slow), pytest.param("fork", GYM, marks=pytest.mark.slow)],
)  # fmt: skip
def test_processes_and_the_serial_mode_write_the_same_rows(start_method: str, game: dict[str, Any]) -> None:
    with ActorPool(config(start_method=start_method, **game)) as pool, InlineActors(config(**game)) as inline:
        pool.start()
        inline.start()
        ours, theirs = collect(pool, 4), collect(inline, 4)
    for group, slots in ours.items():
        for slot, other in zip(slots, theirs[group], strict=True):
            for name in slot:
                whole = name in pool.slots.observation or name in CARRIED_FIELDS
                rows = slice(0, None if whole else ROLLOUT)
                np.testing.assert_array_equal(slot[name][rows], other[name][rows], err_msg=f"{group} {name}")


@pytest.mark.parametrize("kind", [ActorPool, InlineActors])
def test_a_start_ends_when_it_is_asked_to(kind: type[ActorPool] | type[InlineActors]) -> None:
    """A thousand processes take minutes to start: Ctrl-C is heard between two of them."""
    stop = StopsAfter(2)
    with kind(config(workers=5)) as actors:
        with pytest.raises(StoppedError):
            actors.start(stop.stopped)
        assert stop._left == -1
        pids = set(actors.pids()) if isinstance(actors, ActorPool) else set()
        assert len(pids) == (4 if kind is ActorPool else 0)
    assert not still_there(pids)


def test_actors_map_no_jax() -> None:
    with playing(config(workers=1)) as pool:
        mapped = Path(f"/proc/{pool.pids()[0]}/maps").read_text()
        assert ("numpy" in mapped, "jaxlib" in mapped) == (True, False)


def played_on(actors: InlineActors, steps: int) -> list[str]:
    """What is reported while each place plays actions of its own; full slots come back late. The last line is that of counts."""
    told, full = list[str](), list[int]()
    actors.on_finished = full.append
    for step in range(steps):
        ready = actors.ready(0)
        for entry in ready:
            actors.slots.action[entry.slot, entry.row] = [1 + (step + column) % 2 for column in range(3)]
        actors.act(ready)
        told += [f"{ready} {sorted(actors.begun_anew)} {full}", *map(str, actors.episodes())]
        while full and step % 7 == steps % 7 - 1:
            slot = full.pop()
            told.append(f"{slot} is of {actors.group_of(slot)}, {actors.first_env_of(slot)}")
            actors.release(slot)
    slots = vars(actors.slots).items()
    told += [f"{name} {shown_array(array)}" for name, array in slots if isinstance(array, np.ndarray)]
    counts = f"{actors.next_episode()} {actors.rebuilt} {actors.dropped_slots} {actors.restarts}"
    return [*told, shown_array(actors.slots.dump()), json.dumps(actors.state()), counts]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("recall", {"first_env": 6, "warmup_steps": 9}),
        (
            "same_step",
            {"options": {"delay": 8, "max_episode_steps": 3}, "same_step_autoreset": True, "warmup_steps": 5},
        ),
        ("corridor", {"env": "tests.toys:Corridor", "options": {"max_episode_steps": 4}, "warmup_steps": 25}),
    ],
)
def test_rows_and_states_are_recorded_and_go_on_elsewhere(name: str, changes: Any, record: bool) -> None:
    given = config(workers=1, remembered=12, slots_per_group=4, **changes)
    with InlineActors(given, next_episode=[5, 0, 2]) as actors, InlineActors(given) as other:
        actors.start()
        assert_matches_packed_recording(f"actors_{name}", {"told": "\n".join(played_on(actors, 13))}, record)
        state, block = json.loads(json.dumps(actors.state())), actors.slots.dump()
        other.restore(state, block)
        other.start()
        assert other.rebuilt == 6
        assert played_on(actors, 16)[:-1] == played_on(other, 16)[:-1]


def test_backpressure_stops_the_actors_until_a_slot_comes_back() -> None:
    finished: list[int] = []
    with ActorPool(config(workers=1, slots_per_group=2)) as pool:
        pool.start()
        drive(pool, lambda: len(finished) == 4, finished.append)
        assert sorted(finished) == [0, 1, 2, 3]
        assert pool.ready(0.3) == []
        pool.release(finished[0])
        ready = pool.ready(5.0) or pool.ready(5.0)
        assert [(entry.slot, entry.row) for entry in ready] == [(finished[0], 0)]
