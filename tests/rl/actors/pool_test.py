"""Groups of environments that fill slots, in processes and in one thread: rows, flags, episodes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.rl.actors.actor import episode_seed
from motif_jax.rl.actors.inline import InlineActors
from motif_jax.rl.actors.pool import ActorPool
from motif_jax.rl.actors.rollouts import ActorsConfig, Ready, Rollouts
from motif_jax.rl.actors.slots import CARRIED_FIELDS, MAGIC, SlotLayout
from tests.play.stand_ins import StopsAfter
from tests.processes import still_there
from tests.sets import extra

ROLLOUT = 5


def config(**changes: object) -> ActorsConfig:
    values = {
        "env": "Recall-v0",
        "options": {"delay": 2},
        "seed": 3,
        "workers": 2,
        "envs_per_group": 3,
    }
    return ActorsConfig(**{**values, "rollout": ROLLOUT, **changes})


def act(actors: Rollouts, ready: list[Ready]) -> None:
    """Plays action 1; at a slot's begin it marks the rows that are to be written."""
    values = {
        "action": 1,
        "behaviour_log_prob": -0.5,
        "behaviour_value": 0.25,
        "parameter_version": 7,
    }
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
def playing(actors_config: ActorsConfig) -> Iterator[ActorPool]:
    """A pool that has ended an episode."""
    with ActorPool(actors_config) as pool:
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
WRAPPED = {
    "env": "gym:FrozenLake-v1",
    "options": {"kwargs": {"is_slippery": False}, "wrappers": "tests.gym_toys:two_observations"},
}


@pytest.mark.parametrize(
    ("start_method", "game"),
    [("auto", {}), pytest.param("exec", {}, marks=pytest.mark.slow), pytest.param("auto", GYM, marks=pytest.mark.slow),
     extra("exec", WRAPPED)],
)  # fmt: skip
def test_processes_and_the_serial_mode_write_the_same_rows(
    start_method: str, game: dict[str, Any]
) -> None:
    with (
        ActorPool(config(start_method=start_method, **game)) as pool,
        InlineActors(config(**game)) as inline,
    ):
        pool.start()
        inline.start()
        slots_of_pool = collect(pool, 4)
        slots_of_inline = collect(inline, 4)
    for group, slots in slots_of_pool.items():
        for slot, other in zip(slots, slots_of_inline[group], strict=True):
            for name in slot:
                has_final_row = name in pool.slots.observation or name in CARRIED_FIELDS
                rows = slice(0, None if has_final_row else ROLLOUT)
                np.testing.assert_array_equal(
                    slot[name][rows], other[name][rows], err_msg=f"{group} {name}"
                )


@pytest.mark.parametrize("kind", [ActorPool, InlineActors])
def test_a_start_ends_when_it_is_asked_to(kind: type[ActorPool] | type[InlineActors]) -> None:
    """A thousand processes take minutes to start: Ctrl-C is heard between two of them."""
    stop = StopsAfter(2)
    with kind(config(workers=5)) as actors:
        with pytest.raises(StoppedError):
            actors.start(stop.stopped)
        assert stop.left == -1
        pids = set(actors.pids()) if isinstance(actors, ActorPool) else set()
        assert len(pids) == (4 if kind is ActorPool else 0)
    assert not still_there(pids)


def test_actors_map_no_jax() -> None:
    with playing(config(workers=1)) as pool:
        mapped = Path(f"/proc/{pool.pids()[0]}/maps").read_text()
        assert ("numpy" in mapped, "jaxlib" in mapped) == (True, False)


def first_slot(**changes: Any) -> dict[str, np.ndarray]:
    """The rows of the first slot of group 0, [T + 1, envs, ...], without processes."""
    with InlineActors(config(workers=1, rollout=12, **changes)) as actors:
        actors.start()
        return collect(actors, 1)[0][0]


def test_a_final_observation_has_a_row_of_its_own() -> None:
    slot = first_slot()
    # Four actions end an episode (cue, two blanks, question); row 4 is its final observation.
    np.testing.assert_array_equal(slot["first"][:7, 0], [1, 0, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(slot["last"][:7, 0], [0, 0, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(slot["terminated"][:6, 0], [0, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(slot["episode"][:7, 0], [0, 0, 0, 0, 0, 1, 1])
    assert slot["truncated"][:12].sum() == 0


def test_a_reward_stands_in_the_row_of_its_action() -> None:
    slot = first_slot()
    cue = slot["features"][0, :, :4].argmax(axis=-1)
    np.testing.assert_array_equal(slot["reward"][3], (cue == 1).astype(np.float32))
    assert slot["reward"][:3].sum() == 0


LIMITED = {"options": {"delay": 8, "max_episode_steps": 3}}


def test_a_step_limit_is_a_truncation() -> None:
    slot = first_slot(**LIMITED)
    np.testing.assert_array_equal(slot["first"][:9, 0], [1, 0, 0, 0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(slot["truncated"][:8, 0], [0, 0, 1, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(slot["last"][:8, 0], [0, 0, 0, 1, 0, 0, 0, 1])
    assert slot["terminated"][:12].sum() == 0


def test_with_same_step_autoreset_a_step_limit_is_a_termination() -> None:
    slot = first_slot(**LIMITED, same_step_autoreset=True)
    np.testing.assert_array_equal(slot["first"][:7, 0], [1, 0, 0, 1, 0, 0, 1])
    np.testing.assert_array_equal(slot["terminated"][:6, 0], [0, 0, 1, 0, 0, 1])
    assert slot["last"].sum() == 0
    assert slot["truncated"][:12].sum() == 0


def test_a_slot_begins_with_the_previous_slots_last_row() -> None:
    with InlineActors(config(workers=1)) as actors:
        actors.start()
        for slots_of_group in collect(actors, 4).values():
            for slot, next_slot in itertools.pairwise(slots_of_group):
                for name in (*actors.slots.observation, *CARRIED_FIELDS):
                    np.testing.assert_array_equal(slot[name][-1], next_slot[name][0], err_msg=name)


def test_episodes_are_reported_once_with_numbers_and_seeds() -> None:
    episodes: list[dict[str, Any]] = []
    with InlineActors(config(workers=1, first_env=6), next_episode=[5] * 6) as actors:
        actors.start()
        # An episode has 4 steps and the row of its final observation.
        for _ in range(12):
            act(actors, actors.ready(0))
            episodes += actors.episodes()
        assert actors.next_episode() == [8] * 6
    played = sorted((episode["env"], episode["episode"]) for episode in episodes)
    assert played == [(env, number) for env in range(6, 12) for number in (5, 6)]
    for episode in episodes:
        assert episode["seed"] == episode_seed(3, episode["env"], episode["episode"])
        assert (episode["length"], episode["truncated"]) == (4.0, 0.0)
        assert episode["return"] == episode["success"]


def test_episodes_that_random_steps_began_are_not_reported() -> None:
    with InlineActors(config(workers=1, warmup_steps=9)) as actors:
        actors.start()
        act(actors, actors.ready(0))
        begun = actors.slots.episode[[0, 3], 0].ravel()
        # The cue is shown in an episode's first observation alone.
        shows_cue = actors.slots.observation["features"][[0, 3], 0, :, :-1].any(axis=-1).ravel()
        counts = actors.slots.observation["sign_count"][[0, 3], 0].ravel()
        episodes: list[dict[str, Any]] = []
        for _ in range(10):
            act(actors, actors.ready(0))
            episodes += actors.episodes()
    first_reported = [min(e["episode"] for e in episodes if e["env"] == env) for env in range(6)]
    assert np.ptp(counts) > 0, "all environments run in step"
    assert first_reported == (begun + ~shows_cue).tolist()


def test_random_steps_are_possible_actions() -> None:
    """The corridor raises ValueError at an action that its state does not have."""
    corridor = {
        "env": "tests.toys:Corridor",
        "options": {"max_episode_steps": 4},
        "warmup_steps": 25,
    }
    with InlineActors(config(workers=1, **corridor)) as actors:
        actors.start()
        assert len(actors.ready(0)) == 2


def test_a_slot_belongs_to_its_group_and_environments() -> None:
    with InlineActors(config(first_env=6, slots_per_group=4)) as actors:
        slots = range(actors.slots.layout.num_slots)
        assert [actors.group_of(slot) for slot in slots] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
        assert [actors.first_env_of(slot) for slot in slots] == [6] * 4 + [9] * 4 + [12] * 4 + [
            15
        ] * 4


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


def test_fields_with_names_of_a_trajectory_are_refused() -> None:
    field = ArraySpec((2,), "float32")
    with pytest.raises(
        UserError, match=r"has fields named action, reward, as parts of a trajectory are: give them"
    ):
        SlotLayout.of(
            EnvironmentSpec({"reward": field, "action": field, "view": field}, 2), 1, 2, 3, 1
        )
