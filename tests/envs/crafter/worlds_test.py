"""The faster noise, and the worlds that it makes, are the package's."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip(
    "crafter", reason="the package crafter is not there: pip install 'motif-jax[crafter]'"
)

import opensimplex
from crafter import worldgen

from motif_jax.envs.crafter.game import CrafterGame
from motif_jax.envs.crafter.noise import Noise


@pytest.mark.parametrize("seed", [0, 5, 2**31 - 2])
def test_noise_is_that_of_opensimplex(seed):
    rng = np.random.default_rng(seed)
    # Of fewer points some neighbours of the lattice reach none.
    x, y = rng.uniform(-20, 20, (2, 3000))
    z = rng.integers(0, 9, 3000).astype(float)
    package = opensimplex.OpenSimplex(seed)

    expected = [package.noise3(*point) for point in zip(x, y, z, strict=True)]

    np.testing.assert_allclose(Noise(seed).at(x, y, z), expected, atol=1e-4)


def test_a_world_is_that_of_the_package():
    ours = CrafterGame((24, 24))
    theirs = CrafterGame((24, 24))
    ours.begin(4)
    theirs.begin(4)
    theirs.world.reset(seed=4)
    theirs.world.add(theirs.player)

    worldgen.generate_world(theirs.world, theirs.player)

    assert [[ours.world[x, y][0] for y in range(24)] for x in range(24)] == [
        [theirs.world[x, y][0] for y in range(24)] for x in range(24)
    ]
    assert ours.world.random.uniform() == theirs.world.random.uniform()
