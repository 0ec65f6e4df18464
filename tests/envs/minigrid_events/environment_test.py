"""The package's minigrid levels against minigrid's own, and their captions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Goal, Key
from minigrid.envs import DoorKeyEnv

from motif_jax.envs import registry
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.minigrid_events.captions import DROP, FORWARD, PICK_UP, TOGGLE
from motif_jax.envs.minigrid_events.catalogue import LEVELS
from motif_jax.envs.minigrid_events.environment import MiniGridEvents
from motif_jax.envs.minigrid_events.renderer import EventsRenderer
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED, empty_observation

LEFT = 0
RIGHT = 1
OBJECTS = 11
COLORS = 6


def view_codes(out: dict[str, np.ndarray]) -> np.ndarray:
    """The view, decoded from one-hot to minigrid's codes, uint8 [7, 7, 3]."""
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
            observation, _ = theirs.reset(seed=step)
            ended = False
        else:
            # Mostly forward and toggle, so that doors open within few steps.
            action = int(generator.choice(6, p=[0.1, 0.1, 0.35, 0.15, 0.05, 0.25]))
            reward, end = ours.step(action, out)
            observation, expected, terminated, truncated, _ = theirs.step(action)
            expected_end = RUNNING
            if terminated:
                expected_end = TERMINATED
            elif truncated:
                expected_end = TRUNCATED
            assert (reward, end) == (expected, expected_end)
            ended = end != RUNNING
        np.testing.assert_array_equal(view_codes(out), observation["image"])
        assert out["direction"].argmax() == observation["direction"]


SMALL_WORLD = "MiniGrid-SmallWorld-v0"


class SmallWorld(DoorKeyEnv):
    """A room of 3 x 3 cells, the same for every seed."""

    def __init__(self, faced: Any, **options: Any) -> None:
        self.faced = faced
        super().__init__(size=5, **options)

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        self.grid.wall_rect(0, 0, width, height)
        self.grid.set(1, 2, Key("red"))
        self.grid.set(2, 1, self.faced or Door("red", is_locked=True))
        self.agent_pos = (1, 1)
        self.agent_dir = 0
        self.mission = "use the key to open the door and then get to the goal"


def small_world(faced: Any = None, **options: Any) -> tuple[MiniGridEvents, dict[str, np.ndarray]]:
    """The agent faces `faced`, by default a locked door; the door's key is on the agent's right."""
    gymnasium.registry.pop(SMALL_WORLD, None)
    gymnasium.register(SMALL_WORLD, entry_point=lambda **made: SmallWorld(faced, **made))
    ours = MiniGridEvents(SMALL_WORLD, **options)
    out = empty_observation(ours.spec)
    ours.reset(0, out)
    return ours, out


# The red key is taken, the door unlocked, closed, opened and passed, and the key dropped after it.
STORY = [
    (FORWARD, "You bump into a red door."),
    (TOGGLE, "The red door is locked."),
    (RIGHT, ""),
    (FORWARD, "You bump into a red key."),
    (PICK_UP, "You pick up a red key."),
    (PICK_UP, ""),
    (LEFT, ""),
    (TOGGLE, "You unlock the red door."),
    (TOGGLE, "You close the red door."),
    (FORWARD, "You bump into a red door."),
    (TOGGLE, "You open the red door."),
    (FORWARD, "You step into the red doorway."),
    (FORWARD, ""),
    (FORWARD, "You bump into a wall."),
    (DROP, ""),
    (RIGHT, ""),
    (DROP, "You drop a red key."),
]


def test_a_caption_names_the_event_and_its_count() -> None:
    ours, out = small_world(max_episode_steps=len(STORY))
    counts = {"": 1}

    for action, caption in STORY:
        ours.step(action, out)
        counts[caption] = counts.get(caption, 0) + 1
        assert decoded(out["text"]) == caption
        assert out["text_count"] == counts[caption]


def test_a_level_counts_that_its_door_was_passed() -> None:
    ours, out = small_world(max_episode_steps=len(STORY))
    through_door = []
    ends = []

    for action, _ in STORY:
        ends.append(ours.step(action, out)[1])
        through_door.append(ours.episode_info()["through_door"])

    passed = [caption for _, caption in STORY].index("You step into the red doorway.")
    assert through_door == [0] * passed + [1] * (len(STORY) - passed)
    assert ends == [RUNNING] * (len(STORY) - 1) + [TRUNCATED]


def test_people_see_the_level_with_its_caption() -> None:
    ours, out = small_world(fields=("grid", "lit", "pose"))
    drawer = EventsRenderer(ours.spec)

    ours.step(FORWARD, out)
    frame = drawer.frame(out)

    rows = ["".join(map(chr, row)).rstrip() for row in frame.chars[:5]]
    assert rows == ["# # # # #", "# > X . #", "# k . . #", "# . . . #", "# # # # #"]
    assert tuple(frame.cursor) == (1, 2)
    assert frame.notes == {"caption": "You bump into a red door."}


def test_the_goal_pays_less_the_later_it_is_reached() -> None:
    ours, out = small_world(Goal())

    # The limit of a level of 5 by 5 cells is 10 * 5 * 5 = 250 steps.
    assert ours.step(FORWARD, out) == (pytest.approx(1 - 0.9 / 250), TERMINATED)
    assert ours.episode_info()["success"] == 1
