"""Where a reward that is learned online stands before a batch, and how a checkpoint holds it."""

from __future__ import annotations

import json
import threading
from collections import deque
from typing import Any, NamedTuple

import numpy as np


class RewardSnapshot(NamedTuple):
    """The reward before a batch; whatever it holds is never changed afterwards.

    Attributes:
      number: of the batch.
      length: of the label log.
      labels: so many are in it.
      step: environment steps of the run.
      version: of the reward.
      changed: number of the first batch with this version.
      own: what the kind adds.
    """

    number: int = 0
    length: int = 0
    labels: int = 0
    step: int = 0
    version: int = 0
    changed: int = 0
    own: Any = None


class Moments:
    """The newest moments: the batcher's thread adds one for each batch, a checkpoint is of the batch that the learner is at."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._kept: deque[RewardSnapshot] = deque([RewardSnapshot()], maxlen=most)

    def add(self, moment: RewardSnapshot) -> None:
        """Takes note of where the reward stands; of more than `most` the oldest is forgotten."""
        with self._lock:
            self._kept.append(moment)

    def before(self, number: int) -> RewardSnapshot:
        """That before batch `number`; where nothing was paid yet, the one that the run began with.

        Raises:
          RuntimeError: it is forgotten.
        """
        with self._lock:
            found = next((moment for moment in self._kept if moment.number == number), None)
            if found is None and self._kept[0].number > number:
                raise RuntimeError(
                    f"the reward before batch {number} is forgotten: {self._kept[0].number} is the oldest kept"
                )
            return self._kept[0]._replace(number=number) if found is None else found

    def begin(self, moment: RewardSnapshot) -> None:
        """Forgets all others."""
        with self._lock:
            self._kept.clear()
            self._kept.append(moment)


class Book(NamedTuple):
    """What a checkpoint holds of a reward as JSON, beside arrays.

    Attributes:
      moment: without what the kind adds.
      source: `LabelSource.state`.
      own: the data of what the kind adds, None for nothing.
    """

    moment: RewardSnapshot
    source: dict[str, Any]
    own: dict[str, Any] | None

    def pack(self) -> np.ndarray:
        """As bytes, uint8 [n]."""
        book = {**self.moment._asdict(), "own": self.own, "source": self.source}
        return np.frombuffer(json.dumps(book).encode(), np.uint8)

    @classmethod
    def unpack(cls, data: np.ndarray) -> Book:
        """The inverse of `pack`."""
        book = json.loads(np.asarray(data).tobytes())
        source, own = book.pop("source"), book.pop("own")
        return cls(RewardSnapshot(**book), source, own)
