"""Crafter's game as a function of its seed and actions, which the package alone is not.

Two things are mended. The package chooses the creature that leaves a chunk from a set, whose order
is that of memory addresses. And its pictures draw the noise of the night from the game's random
numbers, so that to look changes the game.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import crafter
import numpy as np
from crafter import objects

from motif_jax.envs.crafter import worlds


class OrderedObjects(dict[Any, None]):
    """The objects of a chunk in the order in which they came there, in place of the package's
    set.
    """

    def add(self, thing: Any) -> None:
        self[thing] = None

    def remove(self, thing: Any) -> None:
        del self[thing]


class CrafterGame(crafter.Env):
    """A game that has no limit of steps.

    `world` and `player` are the package's objects. `semantic`: what is in each cell, a material's
    or an object's number: uint8 [width, height].
    """

    def __init__(self, area: Sequence[int]) -> None:
        width, height = area
        # Length 0: the package sets no limit, as the environment has its own.
        super().__init__(area=(width, height), length=0, seed=0)
        self.world = self._world
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Starts the episode of `seed`, below 2^32."""
        # As the package's `reset`, with this episode's seed, ordered chunks and fast noise, and
        # without a picture.
        self._picture_seed = seed
        self.world.reset(seed=seed)
        # The reset makes sets, and nothing lies in them yet.
        self.world._chunks = collections.defaultdict(OrderedObjects)
        self._step = 0
        self._update_time()
        width, height = self.world.area
        self.player = objects.Player(self.world, (width // 2, height // 2))
        self._player = self.player
        self._last_health = self.player.health
        self._unlocked: set[str] = set()
        self.world.add(self.player)
        worlds.generate(self.world, self.player)
        self.semantic: np.ndarray = self._sem_view()

    def play(self, action: int) -> float:
        """Plays an action; returns the package's reward: 1 for a step with new achievements,
        however many, 0.1 for each point of health that comes or goes.
        """
        _, reward, _, info = self.step(action)
        self.semantic = info["semantic"]
        return float(reward)

    @property
    def steps(self) -> int:
        """Steps of the episode so far."""
        return self._step

    def picture(self, size: int) -> np.ndarray:
        """The package's picture: uint8 [size, size, 3]. The noise of the night is a function of
        seed and step.
        """
        game_random = self.world.random
        self.world.random = np.random.RandomState((self._picture_seed, self._step))
        try:
            return self.render((size, size))
        finally:
            self.world.random = game_random

    def _obs(self) -> None:
        """The package would draw a picture at every step."""
