"""A mine: pull the lever at its left end, then leave by the gate at its right end. `tell` puts what
happens into words.

    PYTHONPATH=docs/examples python -m motif_jax.launch --config=configs/collect.py \\
        --workdir=runs/mine/data --config.environment.name=gym:Mine-v0 \\
        --config.environment.modules=mine --config.environment.text=mine:tell
"""

import gymnasium
from gymnasium.spaces import Dict, Discrete

CELLS = 15
LEFT, RIGHT, PULL = range(3)  # actions


class Mine(gymnasium.Env):
    action_space = Discrete(3)
    observation_space = Dict({"cell": Discrete(CELLS), "lever": Discrete(2)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(5, 10))
        self.lever = 0
        return {"cell": self.cell, "lever": self.lever}, {}

    def step(self, action):
        self.before = (self.cell, self.lever)
        if action == RIGHT:
            self.cell = min(self.cell + 1, CELLS - 1)
        elif action == LEFT:
            self.cell = max(self.cell - 1, 0)
        elif self.cell == 0:
            self.lever = 1
        is_out = self.lever == 1 and self.cell == CELLS - 1
        observation = {"cell": self.cell, "lever": self.lever}
        return observation, float(is_out), is_out, False, {"is_success": is_out}


def tell(environment, action):
    mine = environment.unwrapped
    if action is None:
        return "You are in a mine."
    if mine.cell == CELLS - 1 and mine.before[0] != mine.cell:
        return "The gate opens, and you walk out!" if mine.lever else "The gate is shut."
    if mine.lever and not mine.before[1]:
        return "You pull the lever. Something clanks far away."
    return "You bump into rock." if action != PULL and mine.before[0] == mine.cell else ""


gymnasium.register("Mine-v0", entry_point=Mine, max_episode_steps=100)
