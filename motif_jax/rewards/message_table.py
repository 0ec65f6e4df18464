"""Rewards of texts, computed once for each distinct text and looked up after that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from motif_jax.datasets.pairs.distinct import distinct_rows, hash_rows

# (parameters, texts uint8 [n, L]) -> values float32 [n]
ComputeTexts = Callable[[Any, np.ndarray], np.ndarray]


class Values(NamedTuple):
    """Rewards float32 [N] of texts, and the version of the parameters that computed them."""

    values: np.ndarray
    version: int


class MessageTable:
    """A bounded table text -> value for one version of some parameters. Safe to use from several threads.

    Texts are found by a 64-bit hash and compared byte by byte, so that a value is never another text's. When
    the table is full, the half that was not used for the longest time is dropped.
    """

    def __init__(self, compute: ComputeTexts, params: Any, version: int = 0, capacity: int = 1 << 18) -> None:
        """`version`: number of `params`. `capacity`: most texts that are kept, at least 2."""
        if capacity < 2:
            raise ValueError(f"capacity={capacity}: at least 2 expected")
        self._compute = compute
        self._capacity = capacity
        self._lock = threading.Lock()
        self.hits = self.misses = 0
        self._set(params, version)

    def _set(self, params: Any, version: int, width: int = 0) -> None:
        self.params, self.version = params, version
        # Sorted hashes, and for each the row of the unsorted arrays that holds its text.
        self._keys = np.empty(0, np.uint64)
        self._rows = np.empty(0, np.int64)
        self._texts = np.empty((0, width), np.uint8)
        self._values = np.empty(0, np.float32)
        self._last_use = np.empty(0, np.int64)
        self._tick = 0

    def __len__(self) -> int:
        return self._keys.size

    def swap(self, params: Any, version: int) -> None:
        """Replaces the parameters and drops their values, without a new compilation."""
        with self._lock:
            self._set(params, version)

    def lookup(self, texts: np.ndarray) -> Values:
        """Values float32 [N] of texts uint8 [N, L]; texts not seen before are computed, each once."""
        texts = np.ascontiguousarray(texts)
        if texts.ndim != 2 or texts.dtype != np.uint8:
            raise ValueError(f"texts: uint8 [N, L] expected, {texts.dtype} {list(texts.shape)} given")
        with self._lock:
            if self._texts.shape[1] != texts.shape[1]:
                self._set(self.params, self.version, texts.shape[1])
            keys = hash_rows(texts)
            values, known = self._find(keys, texts)
            self.hits += int(known.sum())
            missing = np.flatnonzero(~known)
            if missing.size:
                self.misses += missing.size
                values[missing] = self._add(keys[missing], texts[missing])
            return Values(values, self.version)

    def _find(self, keys: np.ndarray, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not self._keys.size:
            return np.zeros(keys.size, np.float32), np.zeros(keys.size, bool)
        places = np.minimum(np.searchsorted(self._keys, keys), self._keys.size - 1)
        rows = self._rows[places]
        known = (self._keys[places] == keys) & (self._texts[rows] == texts).all(axis=1)
        self._tick += 1
        self._last_use[rows[known]] = self._tick
        return np.where(known, self._values[rows], np.float32(0)), known

    def _add(self, keys: np.ndarray, texts: np.ndarray) -> np.ndarray:
        table, ids = distinct_rows(texts)
        values = np.asarray(self._compute(self.params, table), np.float32)
        if values.shape != (len(table),):
            raise ValueError(f"the reward gave shape {values.shape} for {len(table)} texts")
        first = np.unique(ids, return_index=True)[1]
        # Only one of several texts with the same hash can be kept; the others are computed each time.
        new_keys, chosen = np.unique(keys[first], return_index=True)
        fresh = ~np.isin(new_keys, self._keys)
        new_keys, chosen = new_keys[fresh][: self._capacity], chosen[fresh][: self._capacity]
        if self._keys.size + new_keys.size > self._capacity:
            self._forget(min(self._capacity // 2, self._capacity - new_keys.size))
        size = self._keys.size
        self._reserve(size + new_keys.size)
        new_rows = np.arange(size, size + new_keys.size)
        self._texts[new_rows], self._values[new_rows] = table[chosen], values[chosen]
        self._last_use[new_rows] = self._tick
        places = np.searchsorted(self._keys, new_keys)
        self._keys = np.insert(self._keys, places, new_keys)
        self._rows = np.insert(self._rows, places, new_rows)
        return values[ids]

    def _reserve(self, rows: int) -> None:
        room = len(self._values)
        if rows > room:
            extra = min(max(2 * room, rows, 1024), max(self._capacity, rows)) - room
            self._texts = np.concatenate([self._texts, np.zeros((extra, self._texts.shape[1]), np.uint8)])
            self._values = np.concatenate([self._values, np.zeros(extra, np.float32)])
            self._last_use = np.concatenate([self._last_use, np.zeros(extra, np.int64)])

    def _forget(self, keep: int) -> None:
        last_use = self._last_use[self._rows]
        kept = np.sort(np.argsort(-last_use, kind="stable")[:keep])
        rows = self._rows[kept]
        self._texts, self._values = self._texts[rows], self._values[rows]
        self._last_use = self._last_use[rows]
        self._keys, self._rows = self._keys[kept], np.arange(keep)
