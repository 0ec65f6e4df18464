"""Environments whose process died continue where they were, played again from seeds and actions."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from motif_jax.core.parent_death import ParentGoneError
from motif_jax.rl.actors.group import SlotGroup
from motif_jax.rl.actors.inline import InlineActors
from motif_jax.rl.actors.pool import ActorPool
from motif_jax.rl.actors.rollouts import Ready, Rollouts
from motif_jax.rl.actors.slots import Slots
from tests.rl.actors.pool_test import config

# An episode of 52 steps, in which the number of times that nothing was said is the number of blank
# steps.
EPISODE = {"delay": 50, "max_episode_steps": 100}
CONFIG = config(options=EPISODE, workers=1, groups_per_worker=1, rollout=64, remembered=100)


def advance(actors: Rollouts, steps: int, slots: set[int] | None = None) -> Ready:
    """Plays until row `steps` of a slot that is not one of `slots` is written; returns the entry
    that waits for actions then.
    """
    deadline = time.monotonic() + 240
    while True:
        assert time.monotonic() < deadline, "the actors did not get there"
        for entry in actors.ready(0.2):
            if entry.slot not in (slots or ()) and entry.row == steps:
                return entry
            actors.slots.action[entry.slot, entry.row] = entry.row % 4
            actors.act([entry])


def test_a_process_that_dies_costs_the_rollout_and_no_game() -> None:
    with ActorPool(CONFIG) as pool:
        pool.start()
        before = advance(pool, 20)
        episode = pool.slots.episode[before.slot, 20].copy()
        assert (pool.slots.observation["sign_count"][before.slot, 20] == 20).all()
        os.kill(pool.pids()[0], signal.SIGKILL)
        # The row that the dead process is to play may come to nothing.
        pool.slots.action[before.slot, 20] = 0
        pool.act([before])
        after = advance(pool, 0, {before.slot})
        assert (pool.restarts, pool.dropped_slots, pool.rebuilt) == (1, 1, 3)
        counts = pool.slots.observation["sign_count"][after.slot, 0]
        assert set(counts.tolist()) <= {20, 21}
        np.testing.assert_array_equal(pool.slots.episode[after.slot, 0], episode)
        assert not pool.slots.first[after.slot, 0].any()
        pool.slots.action[after.slot, 0] = 1
        pool.act([after])
        later = advance(pool, 10, {before.slot})
        np.testing.assert_array_equal(
            pool.slots.observation["sign_count"][later.slot, 10], counts + 10
        )


def after_twenty_steps() -> tuple[dict[str, Any], np.ndarray]:
    """The state of actors in the middle of their episodes, and their slots."""
    with InlineActors(CONFIG) as actors:
        actors.start()
        advance(actors, 20)
        return actors.state(), actors.slots.dump()


def test_processes_continue_the_episodes_of_a_checkpoint() -> None:
    with ActorPool(CONFIG) as pool:
        pool.restore(*after_twenty_steps())
        pool.start()

        entry = advance(pool, 0)

        assert (pool.slots.observation["sign_count"][entry.slot, 0] == 20).all()
        assert pool.rebuilt == 3


def test_an_episode_that_replays_differently_is_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    with InlineActors(CONFIG) as actors:
        actors.restore(*after_twenty_steps())
        # Of 90 blank steps: the episode ends before.
        assert actors.slots.history is not None
        actors.slots.history[0, 1] = 0
        actors.slots.played[0, 1] = 90
        capfd.readouterr()

        actors.start()

        assert actors.next_episode() == [1, 2, 1]
        assert actors.slots.played.tolist() == [[20, 0, 20]]
    line = "environment 1 is not rebuilt: its episode 0 did not replay as before; it begins the next episode\n"
    assert capfd.readouterr().err == line


@pytest.fixture
def games() -> Iterator[SlotGroup]:
    """A group of environments that remembers twenty steps of each episode."""
    slots = Slots.create(CONFIG.layout())
    slots.load(after_twenty_steps()[1])
    group = SlotGroup(CONFIG, slots, 0, lambda episode: None)
    yield group
    group.close()
    slots.close()


def test_rebuilding_ends_when_nobody_reads_the_rows(games: SlotGroup) -> None:
    games.abandoned = lambda: True
    with pytest.raises(ParentGoneError):
        games.rebuild()


def test_warming_up_ends_when_nobody_reads_the_rows(games: SlotGroup) -> None:
    games.abandoned = lambda: True
    with pytest.raises(ParentGoneError):
        games.reset(0, 10**6)


def test_forgotten_episodes_are_not_rebuilt() -> None:
    slots = Slots.create(CONFIG.layout())
    slots.load(after_twenty_steps()[1])
    games = SlotGroup(CONFIG, slots, 0, lambda episode: None)

    games.forget()
    games.rebuild()

    assert slots.next_episode.tolist() == [[2, 2, 2]]
    assert slots.played.tolist() == [[0, 0, 0]]
    games.close()
    slots.close()


def test_groups_that_had_begun_no_game_begin_their_first() -> None:
    def rows_after_five_steps(actors: InlineActors) -> list[list[int]]:
        actors.start()
        entry = advance(actors, 5)
        arrays = (actors.slots.episode, actors.slots.observation["sign_count"])
        return [array[entry.slot, 5].tolist() for array in arrays]

    with InlineActors(CONFIG) as never_stopped, InlineActors(CONFIG) as stopped:
        stopped.start()
        with InlineActors(CONFIG) as resumed:
            resumed.restore(stopped.state(), stopped.slots.dump())
            assert rows_after_five_steps(resumed) == rows_after_five_steps(never_stopped)
            assert resumed.next_episode() == never_stopped.next_episode() == [1, 1, 1]
            assert resumed.rebuilt == 0


def test_a_process_that_dies_with_full_slots_drops_none() -> None:
    full: list[int] = []
    small = dataclasses.replace(CONFIG, rollout=5, slots_per_group=2)
    with ActorPool(small, on_finished=full.append) as pool:
        pool.start()
        while len(full) < 2:
            for entry in pool.ready(0.2):
                pool.slots.action[entry.slot, entry.row] = 0
                pool.act([entry])
        os.kill(pool.pids()[0], signal.SIGKILL)
        while not pool.restarts:
            assert pool.ready(0.2) == []
        pool.release(full[0])
        assert advance(pool, 0).slot == full[0]
        assert pool.dropped_slots == 0
