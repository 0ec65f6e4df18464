"""Environments whose process died continue where they were, played again from seeds and actions."""

from __future__ import annotations

import dataclasses
import os
import signal
import time

import numpy as np
import pytest

from motif_jax.rl.actors.inline import InlineActors
from motif_jax.rl.actors.pool import ActorPool
from motif_jax.rl.actors.rollouts import Ready, Rollouts
from tests.rl.actors.pool_test import config

# An episode of 52 steps, in which the number of times that nothing was said is the number of blank steps.
EPISODE = {"delay": 50, "max_episode_steps": 100}
CONFIG = config(options=EPISODE, workers=1, groups_per_worker=1, rollout=64, remembered=100)


def advance(actors: Rollouts, steps: int, slots: set[int] | None = None) -> Ready:
    """Plays until so many rows are written of a slot that is not one of `slots`; returns what waits for actions then."""
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
        seen = {name: array[before.slot, 20].copy() for name, array in pool.slots.observation.items()}
        episode = pool.slots.episode[before.slot, 20].copy()
        assert (seen["sign_count"] == 20).all()
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
        np.testing.assert_array_equal(pool.slots.observation["sign_count"][later.slot, 10], counts + 10)


def test_what_is_remembered_goes_on_unless_it_differs(capfd: pytest.CaptureFixture[str]) -> None:
    with InlineActors(CONFIG) as actors:
        actors.start()
        advance(actors, 20)
        state, block = actors.state(), actors.slots.dump()
    with ActorPool(CONFIG) as pool:
        pool.restore(state, block)
        pool.start()
        found = advance(pool, 0)
        assert (pool.slots.observation["sign_count"][found.slot, 0] == 20).all()
        assert pool.rebuilt == 3
    capfd.readouterr()
    with InlineActors(CONFIG) as actors:
        actors.restore(state, block)
        actors.slots.history[0, 1], actors.slots.played[0, 1] = 0, 90  # the episode ends before
        actors.start()
        assert (actors.next_episode(), actors.slots.played.tolist()) == ([1, 2, 1], [[20, 0, 20]])
        said = "environment 1 is not rebuilt: its episode 0 did not replay as before; it begins the next episode\n"
        assert capfd.readouterr().err == said
        [games] = actors._groups
        games.abandoned = lambda: True
        with pytest.raises(BrokenPipeError):
            games.rebuild()
        with pytest.raises(BrokenPipeError):
            games.reset(0, 10**6)
        games.forget()
        games.rebuild()
        assert (actors.next_episode(), actors.slots.played.tolist()) == ([3, 4, 3], [[0, 0, 0]])


def test_groups_that_had_begun_no_game_begin_their_first() -> None:
    def rows(actors: InlineActors) -> list[list[int]]:
        actors.start()
        entry = advance(actors, 5)
        written = actors.slots.episode, actors.slots.observation["sign_count"]
        return [array[entry.slot, 5].tolist() for array in written]

    never_stopped, stopped, resumed = (InlineActors(CONFIG) for _ in range(3))
    with never_stopped, stopped, resumed:
        stopped.start()
        resumed.restore(stopped.state(), stopped.slots.dump())
        assert rows(resumed) == rows(never_stopped)
        assert resumed.next_episode() == never_stopped.next_episode() == [1, 1, 1]
        assert resumed.rebuilt == 0


def test_a_process_that_dies_while_its_slots_are_full_drops_none() -> None:
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
