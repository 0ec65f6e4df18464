"""Crafter's world generator with noise that is computed for the whole map at once."""

from __future__ import annotations

import functools
import importlib.util
import types
from typing import Any

import numpy as np

from motif_jax.envs.crafter.noise import Noise

# What the generator asks of the noise for each cell: z, and the lengths by which it divides the
# cell's column and row in turn. A point that is not among them is computed when it is asked for.
_MAPS = (
    (8, (3,), (3,)),  # where the player starts
    (3, (15,), (15,)),  # water
    (3, (5,), (5,)),
    (0, (15,), (15,)),  # mountains
    (0, (5,), (5,)),
    (6, (7,), (7,)),  # caves
    (7, (0.5, 3), (5, 3)),  # tunnels from left to right
    (7, (5, 3), (0.5, 3)),  # and from top to bottom
    (1, (8,), (8,)),  # coal
    (2, (6,), (6,)),  # iron
    (6, (5,), (5,)),  # lava
    (4, (9,), (9,)),  # sand
    (5, (7,), (7,)),  # trees
)


class MapNoise:
    """The noise of a seed as the generator asks for it: a point at a time, from values computed
    before.
    """

    def __init__(self, seed: int, area: tuple[int, int]) -> None:
        self._noise = Noise(seed)
        column, row = (axis.reshape(-1).astype(np.float64) for axis in np.indices(area))
        # Divided as the generator divides, so that its points are found among these.
        x = np.concatenate([functools.reduce(np.divide, across, column) for _, across, _ in _MAPS])
        y = np.concatenate([functools.reduce(np.divide, down, row) for _, _, down in _MAPS])
        z = np.repeat([float(z) for z, _, _ in _MAPS], len(column))
        points = zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
        self._values = dict(zip(points, self._noise.at(x, y, z).tolist(), strict=True))

    def noise3(self, x: float, y: float, z: float) -> float:
        """The noise at a point."""
        value = self._values.get((x, y, z))
        if value is None:
            value = float(self._noise.at(*np.array([x, y, z], np.float64)[:, None])[0])
            self._values[x, y, z] = value
        return value


def load_generator() -> types.ModuleType:
    """A copy of the module crafter.worldgen of its own, so that other users of the package keep its
    noise.
    """
    spec = importlib.util.find_spec("crafter.worldgen")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_GENERATOR = load_generator()


def generate(world: Any, player: Any) -> None:
    """Fills an empty world around the player, by the random numbers of the world."""
    # The generator makes its noise by this name.
    noise = types.SimpleNamespace(OpenSimplex=lambda seed: MapNoise(seed, world.area))
    _GENERATOR.opensimplex = noise  # type: ignore[attr-defined]
    _GENERATOR.generate_world(world, player)
