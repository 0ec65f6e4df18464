"""The example for environments of the old gym API, as the page has it."""

from __future__ import annotations

import re
from types import SimpleNamespace

import gymnasium
import numpy as np

from motif_jax.envs import registry
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED
from tests.envs.playing import started
from tests.processes import REPOSITORY


class Game:
    """Ends at the third step, by its own limit if `limited`."""

    action_space = SimpleNamespace(n=2)
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)

    def __init__(self, limited):
        self.limited = limited

    def seed(self, seed):
        self.given = seed

    def reset(self):
        self.step_number = 0
        return np.zeros(1, np.float32)

    def step(self, action):
        self.step_number += 1
        done = self.step_number == 3
        info = {"TimeLimit.truncated": True} if done and self.limited else {}
        return np.full(1, self.step_number, np.float32), 1.0, done, info


def test_the_example_plays_an_old_environment():
    page = (REPOSITORY / "docs" / "environments.md").read_text(encoding="utf-8")
    (example,) = [
        code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "FromOldGym" in code
    ]
    exec(example, {"old_game": SimpleNamespace(Game=Game)})

    for limited, end in ((False, TERMINATED), (True, TRUNCATED)):
        options = {"kwargs": {"limited": limited}}
        registry.check("gym:FromOldGym-v0", options)
        environment, out = started("gym:FromOldGym-v0", 3, **options)
        assert [environment.step(0, out) for _ in range(3)] == [(1.0, RUNNING)] * 2 + [(1.0, end)]
