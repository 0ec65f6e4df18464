"""Catch a falling ball with a paddle, by the pixels alone: 64 x 64 in colour, in front of stripes
that move.

    PYTHONPATH=docs/examples python -m motif_jax.launch \\
        --config=configs/train_agent.py:gym_pixels --workdir=runs/catch \\
        --config.environment.name=gym:CatchPixels-v0 --config.environment.modules=catch_pixels

The ball falls straight from any column. A paddle catches it in 15 columns of 61, so that who does
not see the ball catches a quarter of them at most. With
--config.environment.kwargs='{"new_colours": true}' each game has colours of its own.
"""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

SIDE, BALL, PADDLE, SPEED = 64, 4, 12, 4
COLOUR_SEED = 0
FLOOR = SIDE - BALL
LEFT, STAY, RIGHT = range(3)
# Each pixel's place across the stripes.
DIAGONAL = np.add.outer(np.arange(SIDE), np.arange(SIDE))


class CatchPixels(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    action_space = Discrete(3)
    observation_space = Box(0, 255, (SIDE, SIDE, 3), np.uint8)

    def __init__(self, render_mode=None, new_colours=False):
        self.render_mode = render_mode
        self.new_colours = new_colours

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row = 0
        self.column = int(self.np_random.integers(SIDE - BALL + 1))
        self.paddle = int(self.np_random.integers(SIDE - PADDLE + 1))
        palette = self.np_random if self.new_colours else np.random.default_rng(COLOUR_SEED)
        self.stripes = palette.integers(0, 120, (2, 3))
        self.stripe_speed = int(self.np_random.integers(-3, 4))
        self.colours = palette.integers(160, 256, (2, 3))
        return self.picture(), {}

    def step(self, action):
        self.row += SPEED
        self.paddle = int(np.clip(self.paddle + SPEED * (int(action) - STAY), 0, SIDE - PADDLE))
        has_landed = self.row >= FLOOR
        is_caught = has_landed and -BALL < self.column - self.paddle < PADDLE
        reward = float(is_caught) - float(has_landed and not is_caught)
        return self.picture(), reward, has_landed, False, {"is_success": is_caught}

    def picture(self):
        stripe_numbers = (DIAGONAL + self.stripe_speed * self.row) // 8 % 2
        picture = self.stripes[stripe_numbers].astype(np.uint8)
        picture[FLOOR:, self.paddle : self.paddle + PADDLE] = self.colours[0]
        picture[self.row : self.row + BALL, self.column : self.column + BALL] = self.colours[1]
        return picture

    def render(self):
        return self.picture().repeat(4, axis=0).repeat(4, axis=1)


gymnasium.register("CatchPixels-v0", entry_point=CatchPixels)
