"""Values of states against theory, where episodes end by their rules, by a limit, or by both at
once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from motif_jax import agents
from tests.play.agent_runs import recall_config
from tests.rl.runs import train
from tests.sets import extra

GAMMA = 0.5


class OneStep(gymnasium.Env):
    """Every episode is one step, pays 1, and shows the same; `ends` are (terminated, truncated)."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, ends: tuple[bool, bool]) -> None:
        self.ends = ends

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        return np.ones(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.ones(2, np.float32), 1.0, *self.ends, {}


# A termination ends the return; a limit does not, so that V = 1 + GAMMA V.
THEORY = {
    "Terminated": ((True, False), 1.0),
    "Truncated": ((False, True), 1 / (1 - GAMMA)),
    "Both": ((True, True), 1.0),
}
for _name, (_ends, _) in THEORY.items():
    gymnasium.register(f"OneStep{_name}-v0", entry_point=OneStep, kwargs={"ends": _ends})


@pytest.mark.slow
@pytest.mark.parametrize("name", [extra("Terminated"), "Truncated", extra("Both")])
def test_values_are_those_of_theory(tmp_path: Path, name: str) -> None:
    changes = {
        "environment__name": f"gym:OneStep{name}-v0", "serial": True,
        "network__core": "none", "algorithm__gamma": GAMMA, "optimizer__learning_rate": 1e-2,
        "reward__intrinsic_coefficient": 0.0, "reward__extrinsic_coefficient": 1.0,
        "reward__extrinsic_scale": 1.0, "train_for_env_steps": 15_000,
    }  # fmt: skip
    train(tmp_path, recall_config(**changes))
    player = agents.load(tmp_path)
    _, state = player.act({"observation": np.ones(2, np.float32)})
    assert float(state.values) == pytest.approx(THEORY[name][1], abs=0.1)
