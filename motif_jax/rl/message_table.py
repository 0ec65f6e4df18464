"""Rewards of texts, computed once for each distinct text and looked up after that."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# (parameters, texts uint8 [n, L]) -> values float32 [n]
ComputeTexts = Callable[[Any, np.ndarray], np.ndarray]


class Values(NamedTuple):
    """Rewards float32 [N] of texts, and the version of the parameters that computed them."""

    values: np.ndarray
    version: int


class MessageTable:
    """A table text -> value for one version of some parameters. Safe to use from several threads.

    Where it would hold more than `capacity` texts, those that were not used for the longest time are dropped, at least half.
    """

    def __init__(self, compute: ComputeTexts, params: Any, version: int = 0, capacity: int = 1 << 18) -> None:
        self._compute, self._capacity, self._lock = compute, capacity, threading.Lock()
        self.swap(params, version)

    def swap(self, params: Any, version: int) -> None:
        """Replaces the parameters and drops their values, without a new compilation."""
        with self._lock:
            self.params, self.version = params, version
            # In the order of their last use.
            self._values: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._values)

    def lookup(self, texts: np.ndarray) -> Values:
        """Values float32 [N] of texts uint8 [N, L]; texts not seen before are computed, each once."""
        if texts.ndim != 2 or texts.dtype != np.uint8:
            raise ValueError(f"texts: uint8 [N, L] expected, {texts.dtype} {list(texts.shape)} given")
        keys = [row.tobytes() for row in texts]
        with self._lock:
            distinct = dict.fromkeys(keys)
            found = {key: self._values.pop(key) for key in distinct if key in self._values}
            if missing := [key for key in distinct if key not in found]:
                rows = np.frombuffer(b"".join(missing), np.uint8).reshape(len(missing), -1)
                values = np.asarray(self._compute(self.params, rows), np.float32)
                if values.shape != (len(missing),):
                    raise ValueError(f"the reward gave shape {values.shape} for {len(missing)} texts")
                found |= zip(missing, values.tolist(), strict=True)
            if len(self._values) + len(found) > self._capacity:
                keep = max(0, min(self._capacity // 2, self._capacity - len(found)))
                self._values = dict(list(self._values.items())[len(self._values) - keep :])
            self._values |= itertools.islice(found.items(), self._capacity)
            return Values(np.array([found[key] for key in keys], np.float32), self.version)
