"""Finds the distinct rows of large byte arrays: few of a dataset's million messages are
distinct.
"""

from __future__ import annotations

import numpy as np

BLOCK_ROWS = 1 << 16
# Factors of the hash. They are odd, so that a product loses no bit of its word.
_WORDS = np.random.default_rng(20231107).integers(0, 2**63, 1 << 10, np.uint64) | np.uint64(1)


def hash_rows(rows: np.ndarray) -> np.ndarray:
    """Hashes rows uint8 [N, W] to uint64 [N], with rare collisions, alike in all processes and
    little-endian machines.
    """
    padding = -rows.shape[1] % 8
    if padding:
        rows = np.pad(rows, ((0, 0), (0, padding)))
    words = np.ascontiguousarray(rows).view(np.uint64)
    factors = np.resize(_WORDS, words.shape[1])
    mixed = words ^ (words >> np.uint64(29))
    total = (mixed * factors).sum(axis=1, dtype=np.uint64)
    total ^= total >> np.uint64(32)
    total *= _WORDS[-1]
    return total ^ (total >> np.uint64(29))


def distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of uint8 [N, W] in the order of first occurrence, and the index int32 [N]
    of each row in them.
    """
    blocks = [slice(start, start + BLOCK_ROWS) for start in range(0, len(rows), BLOCK_ROWS)]
    # Block by block: temporaries of all rows would take several times the memory of a large
    # dataset.
    hashes = np.empty(len(rows), np.uint64)
    for block in blocks:
        hashes[block] = hash_rows(rows[block])
    table, ids = _by_first(rows, hashes)
    # Every row is compared with its representative, since two rows may share a hash.
    if not all(np.array_equal(table[ids[block]], rows[block]) for block in blocks):
        return _by_first(rows, rows)  # two hashes collided
    return table, ids


def _by_first(rows: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of distinct `keys` [N, ...] in the order of first occurrence, and the index of each
    row.
    """
    axis = 0 if keys.ndim > 1 else None
    _, first, ids = np.unique(keys, axis=axis, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    # `unique` numbers the keys by their values, `rank` renumbers them by first occurrence.
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return np.asarray(rows[first[order]]), rank[ids.reshape(-1)].astype(np.int32)


def used_length(table: np.ndarray) -> int:
    """Number of leading bytes up to the last non-zero one in any row of uint8 [M, W]."""
    columns = np.flatnonzero(table.any(axis=0))
    return int(columns[-1]) + 1 if columns.size else 0
