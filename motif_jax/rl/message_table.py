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

    When it would hold more than `capacity` texts, the least recently used ones are dropped, at
    least half of them.
    """

    def __init__(
        self, compute: ComputeTexts, params: Any, version: int = 0, capacity: int = 1 << 18
    ) -> None:
        self._compute = compute
        self._capacity = capacity
        self._lock = threading.Lock()
        self.swap(params, version)

    def swap(self, params: Any, version: int) -> None:
        """Replaces the parameters and drops their values, without a new compilation."""
        with self._lock:
            self.params = params
            self.version = version
            # In the order of last use.
            self._values: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._values)

    def lookup(self, texts: np.ndarray) -> Values:
        """Values float32 [N] of texts uint8 [N, L]; new texts are computed, each once.

        Raises ValueError: `texts` or the computed values do not have these shapes.
        """
        if texts.ndim != 2 or texts.dtype != np.uint8:
            raise ValueError(
                f"texts: uint8 [N, L] expected, {texts.dtype} {list(texts.shape)} given"
            )
        keys = [row.tobytes() for row in texts]
        with self._lock:
            distinct = dict.fromkeys(keys)
            # Taken out here and added at the end, so that the table stays in the order of last use.
            used = {key: self._values.pop(key) for key in distinct if key in self._values}
            missing = [key for key in distinct if key not in used]
            if missing:
                rows = np.frombuffer(b"".join(missing), np.uint8).reshape(len(missing), -1)
                values = np.asarray(self._compute(self.params, rows), np.float32)
                if values.shape != (len(missing),):
                    raise ValueError(
                        f"the reward gave shape {values.shape} for {len(missing)} texts"
                    )
                used |= zip(missing, values.tolist(), strict=True)
            if len(self._values) + len(used) > self._capacity:
                remaining = max(0, min(self._capacity // 2, self._capacity - len(used)))
                self._values = dict(list(self._values.items())[len(self._values) - remaining :])
            self._values |= itertools.islice(used.items(), self._capacity)
            return Values(np.array([used[key] for key in keys], np.float32), self.version)
