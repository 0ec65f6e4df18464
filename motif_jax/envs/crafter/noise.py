"""OpenSimplex noise of three coordinates for whole grids at once; it replaces the package
opensimplex in Crafter's world generator.

opensimplex computes one point at a time in Python: 2 s for a world of 64 x 64 cells, more than its
episode takes to play. Its values and these differ by less than 1e-4, as it leaves out the weakest
contributions at some points.

Source: K. Spencer, OpenSimplex noise (2014, public domain), in three dimensions.
"""

from __future__ import annotations

import itertools

import numpy as np

# Between a cubic lattice and the stretched one that the noise is defined on.
_STRETCH = -1 / 6
_SQUISH = 1 / 3
_NORM = 103.0
# A lattice point contributes to the points within the square root of this distance.
_RADIUS_SQUARED = 2.0
# Those that can be that near to a point of a cell, relative to the cell's corner.
_NEIGHBOURS = (
    (-1, 0, 1), (-1, 1, 0), (-1, 1, 1), (0, -1, 1), (0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, -1), (0, 1, 0), (0, 1, 1),
    (0, 1, 2), (0, 2, 0), (0, 2, 1), (1, -1, 0), (1, -1, 1), (1, 0, -1), (1, 0, 0), (1, 0, 1), (1, 0, 2), (1, 1, -1),
    (1, 1, 0), (1, 1, 1), (1, 2, 0), (2, 0, 0), (2, 0, 1), (2, 1, 0),
)  # fmt: skip
_MASK = 255
# Constants of the generator of the permutation (D. Knuth's MMIX), on signed integers of 64 bits.
_MULTIPLIER = 6364136223846793005
_INCREMENT = 1442695040888963407


def _gradients() -> np.ndarray:
    """The 24 gradients: for each octant, the long axis along x, y, z in turn. float64 [3, 24]."""
    rows = []
    for z, y, x in itertools.product((1, -1), (1, -1), (-1, 1)):
        for long_axis in range(3):
            lengths = [4, 4, 4]
            lengths[long_axis] = 11
            rows.append((x * lengths[0], y * lengths[1], z * lengths[2]))
    return np.array(rows, np.float64).T


_GRADIENTS = _gradients()


class Noise:
    """The noise field of one seed."""

    def __init__(self, seed: int) -> None:
        self._permutation = _permutation(seed)

    def at(self, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The noise, in about -1 to 1, at points of these coordinates, float64 [N] each: float64
        [N].
        """
        # The cell of the stretched lattice that holds each point, and the point relative to its
        # corner.
        stretch = (x + y + z) * _STRETCH
        cells = [np.floor(axis + stretch).astype(np.int64) for axis in (x, y, z)]
        squish = sum(cells) * _SQUISH
        offsets = [axis - cell - squish for axis, cell in zip((x, y, z), cells, strict=True)]

        values = np.zeros(len(x))
        for neighbour in _NEIGHBOURS:
            shifts = [step + sum(neighbour) * _SQUISH for step in neighbour]
            dx, dy, dz = (offset - shift for offset, shift in zip(offsets, shifts, strict=True))
            attenuation = _RADIUS_SQUARED - dx * dx - dy * dy - dz * dz
            near = np.flatnonzero(attenuation > 0)
            gx, gy, gz = self._gradients(
                [cell[near] + step for cell, step in zip(cells, neighbour, strict=True)]
            )
            attenuation = attenuation[near]
            # A lattice point adds (2 - d^2)^4 times the product of its gradient with the way to the
            # point.
            attenuation *= attenuation
            values[near] += (
                attenuation * attenuation * (gx * dx[near] + gy * dy[near] + gz * dz[near])
            )
        return values / _NORM

    def _gradients(self, lattice: list[np.ndarray]) -> np.ndarray:
        """The gradients at lattice points, int64 [N] for each axis: float64 [3, N]."""
        index = np.zeros(len(lattice[0]), np.int64)
        for axis in lattice:
            index = self._permutation[index + axis & _MASK]
        return _GRADIENTS[:, index % _GRADIENTS.shape[1]]


def _permutation(seed: int) -> np.ndarray:
    """The permutation of 0 .. 255 that a seed draws: int64 [256]."""
    state = seed
    for _ in range(3):
        state = _next(state)
    source = list(range(_MASK + 1))
    permutation = np.zeros(_MASK + 1, np.int64)
    for last in range(_MASK, -1, -1):
        state = _next(state)
        drawn = (state + 31) % (last + 1)
        permutation[last] = source[drawn]
        source[drawn] = source[last]
    return permutation


def _next(state: int) -> int:
    """The generator's next state, as a signed integer of 64 bits."""
    unsigned = (state * _MULTIPLIER + _INCREMENT) % (1 << 64)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned
