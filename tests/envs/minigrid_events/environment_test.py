from __future__ import annotations

import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Goal, Key

from motif_jax.envs import registry
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.minigrid_events.captions import DROP, FORWARD, PICK_UP, TOGGLE
from motif_jax.envs.minigrid_events.catalogue import LEVELS
from motif_jax.envs.minigrid_events.environment import MiniGridEvents
from motif_jax.envs.minigrid_events.renderer import EventsRenderer
from motif_jax.envs.spec import RUNNING, TERMINATED, empty_observation
from tests.envs.playing import shown_frame
from tests.recorded_outputs import assert_matches_packed_recording

LEFT, RIGHT = 0, 1
OBJECTS, COLORS = 11, 6


def shown(out: dict[str, np.ndarray]) -> np.ndarray:
    """minigrid's codes uint8 [7, 7, 3] of a view in one-hot."""
    parts = np.split(out["view"].reshape(7, 7, -1), [OBJECTS, OBJECTS + COLORS], axis=-1)
    assert all((part.sum(-1) == 1).all() for part in parts)
    return np.stack([part.argmax(-1) for part in parts], axis=-1)


@pytest.mark.parametrize("name", LEVELS)
def test_observations_rewards_and_ends_are_those_of_minigrid(name: str) -> None:
    ours = registry.make(name)
    assert ours.spec == registry.spec(name)
    out = empty_observation(ours.spec)
    theirs = gymnasium.make(name, disable_env_checker=True).unwrapped
    generator = np.random.default_rng(0)
    ended = True
    for step in range(300):
        if ended:
            ours.reset(step, out)
            seen, _ = theirs.reset(seed=step)
        else:
            # Mostly forward and toggle, so that doors open within few steps.
            action = int(generator.choice(6, p=[0.1, 0.1, 0.35, 0.15, 0.05, 0.25]))
            reward, end = ours.step(action, out)
            seen, expected, terminated, truncated, _ = theirs.step(action)
            assert (reward, end) == (expected, TERMINATED if terminated else 2 * truncated)
        ended = not ended and end != RUNNING
        np.testing.assert_array_equal(shown(out), seen["image"])
        assert out["direction"].argmax() == seen["direction"]


def small_world(faced: Any = None, **options: Any) -> tuple[MiniGridEvents, dict[str, np.ndarray]]:
    """The agent faces a locked door, if nothing else; its key lies to the agent's right."""

    def made(world: Any, width: int, height: int) -> None:
        world.grid = Grid(width, height)
        world.grid.wall_rect(0, 0, width, height)
        world.grid.set(1, 2, Key("red"))
        world.grid.set(2, 1, faced or Door("red", is_locked=True))
        world.agent_pos, world.agent_dir = (1, 1), 0

    ours = MiniGridEvents("MiniGrid-DoorKey-5x5-v0", **options)
    ours._world._gen_grid = types.MethodType(made, ours._world)
    out = empty_observation(ours.spec)
    ours.reset(0, out)
    return ours, out


def test_captions_say_what_happened_and_people_see_them_with_the_level(record: bool) -> None:
    actions = [FORWARD, TOGGLE, RIGHT, FORWARD, PICK_UP, PICK_UP, LEFT, TOGGLE, TOGGLE, FORWARD, TOGGLE]
    actions += [FORWARD, FORWARD, FORWARD, DROP, RIGHT, DROP]
    ours, out = small_world(max_episode_steps=len(actions), fields=("grid", "lit", "pose"))
    seen = {}
    for number, action in enumerate(actions):
        frame = shown_frame(EventsRenderer(ours.spec).frame(out))
        seen[f"{number}"] = f"{frame} {out['text_count']} {ours.step(action, out)} {ours.episode_info()}"
    assert decoded(out["text"]) == "You drop a red key."
    ours, out = small_world(Goal())
    assert ours.step(FORWARD, out) == (pytest.approx(1 - 0.9 / 250), TERMINATED)
    assert_matches_packed_recording(
        "minigrid_captions", {**seen, "goal": f"{decoded(out['text'])} {ours.episode_info()}"}, record
    )
