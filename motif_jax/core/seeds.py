"""Seeds for everything that is random, derived from one number by name.

A derived seed depends on its path alone, not on the order in which seeds are asked for, so that
adding a worker, an environment or a stage changes no other stream.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, *path: int | str) -> int:
    """A stable non-negative 63-bit seed for `path` (names and indices) under `seed`, the same on
    every machine.
    """
    # A separator that no name has, and a mark of the type: 1 and "1" lead to two seeds.
    text = "\x1f".join([f"{seed:d}", *(f"i{p:d}" if isinstance(p, int) else f"s{p}" for p in path)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    # One bit less, so that it fits into a signed integer of 64 bits.
    return int.from_bytes(digest, "little") >> 1


def rng(seed: int, *path: int | str) -> np.random.Generator:
    """Returns a numpy generator seeded with `derive(seed, *path)`."""
    return np.random.default_rng(derive(seed, *path))
