"""The example for environments of the old gym API, as the page has it."""

from __future__ import annotations

import re
import types

import gymnasium
import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED
from tests.envs.playing import started
from tests.processes import REPOSITORY


class Game:
    """Ends at the third step, by its own limit if `limited`."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)

    def __init__(self, limited):
        self.limited = limited

    def seed(self, seed):
        pass

    def reset(self):
        self.step_number = 0
        return np.zeros(1, np.float32)

    def step(self, action):
        self.step_number += 1
        done = self.step_number == 3
        info = {"TimeLimit.truncated": True} if done and self.limited else {}
        return np.full(1, self.step_number, np.float32), 1.0, done, info


@pytest.fixture(scope="module")
def example():
    """The page's example, which registers `gym:FromOldGym-v0`, with the game of this file."""
    page = (REPOSITORY / "docs" / "environments.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (code,) = [example for example in examples if "FromOldGym" in example]
    # The module of the user's that the example takes its game from.
    old_game = types.ModuleType("old_game")
    old_game.Game = Game
    exec(code, {"old_game": old_game})


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize(("limited", "end"), [(False, TERMINATED), (True, TRUNCATED)])
def test_the_example_plays_an_old_environment(limited, end):
    options = {"kwargs": {"limited": limited}}
    registry.check("gym:FromOldGym-v0", options)
    environment, out = started("gym:FromOldGym-v0", 3, **options)

    results = [environment.step(0, out) for _ in range(3)]

    assert results == [(1.0, RUNNING), (1.0, RUNNING), (1.0, end)]
