"""The published split of labelled pairs into a training and a validation part."""

from __future__ import annotations

import math

import numpy as np


def torch_permutation(num: int, seed: int) -> np.ndarray:
    """The permutation of 0..num-1 of `torch.randperm(num)` by a CPU generator seeded with `seed`,
    int64 [num].

    Forward Fisher-Yates on the raw 32-bit outputs of MT19937: entry i is swapped with entry
    i + raw_i mod (num - i), for i = 0..num-2. For num < 2**32 / 20: above it torch draws 64 bits
    per entry.
    """
    bits = np.random.MT19937()
    # As torch seeds its generator; numpy's own seeding of MT19937 mixes the seed first.
    bits._legacy_seeding(seed)
    positions = np.arange(num - 1, dtype=np.int64)
    raw = bits.random_raw(positions.size).astype(np.int64)
    swaps = (positions + raw % (num - positions)).tolist()
    # A list: swaps of single entries are slow in an array.
    order = list(range(num))
    for i, j in enumerate(swaps):
        order[i], order[j] = order[j], order[i]
    return np.asarray(order, dtype=np.int64)


def torch_split(num: int, seed: int, fraction: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """Training and validation indices, int64, of the published split of `num` labelled pairs
    (ALGORITHMS: Motif, preference loss).

    Indices count only the pairs with a known label, in the dataset's order. The training part has
    floor(fraction * num) entries, plus one if rounding leaves an entry over.
    """
    # Rounded so that 1 - 0.8 is 0.2, not 0.19999999999999996.
    num_validation = math.floor(num * round(1.0 - fraction, 12))
    num_train = math.floor(num * fraction)
    num_train += num - num_train - num_validation
    order = torch_permutation(num, seed)
    return order[:num_train], order[num_train:]
