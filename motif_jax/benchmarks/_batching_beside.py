"""A batcher with an intrinsic reward that works in a thread of its own, beside measured calls of
inference.
"""

from __future__ import annotations

import queue
import threading
import time
from types import TracebackType
from typing import Any

import numpy as np

from motif_jax.core.devices.meters import Meters
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.rl.actors.rollouts import Rollouts
from motif_jax.rl.actors.slots import Slots
from motif_jax.rl.batcher import ActorSource, Batcher, Finished
from motif_jax.rl.config import AgentReward
from motif_jax.rl.inference import Inference
from motif_jax.rl.intrinsic import RewardKind
from motif_jax.rl.message_table import MessageTable, Values
from motif_jax.rl.reward_lookup import RewardLookup

_BATCH_STEPS = 4096
_DISTINCT_TEXTS = 400
_TEXT_LENGTH = 40
_STEPS_OF_AN_EPISODE = 500
_WAIT_SECONDS = 0.1


class BatchingBeside:
    """Makes a batch in another thread for every `_BATCH_STEPS` rows that `served` counts, while the
    block runs.

    `microseconds_per_row` has the processor time of its thread per row of its batches.
    """

    def __init__(
        self, spec: EnvironmentSpec, actors: Rollouts, inference: Inference, seed: int
    ) -> None:
        _fill(actors.slots, spec, np.random.default_rng(seed))
        config = actors.config
        self._num_slots = actors.slots.layout.num_slots
        lookup = RewardLookup(spec, _Half(), AgentReward().count_exponent, Meters(), 0)
        columns = _BATCH_STEPS // config.rollout
        self._batcher = Batcher(spec, [ActorSource(actors, inference)], columns, Meters(), lookup)
        self._rows_of_batch = columns * (config.rollout + 1)
        self._next_slot = 0
        self._rows_unbatched = 0
        self._batches = 0
        self._seconds = 0.0  # processor time of all batches
        self._due: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)

    def __enter__(self) -> BatchingBeside:
        self._make_batch()  # compiles
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def microseconds_per_row(self) -> float:
        return 1e6 * self._seconds / max(1, self._batches * self._rows_of_batch)

    def served(self, rows: int) -> None:
        """Counts rows that a call of inference has served; orders a batch once they fill one."""
        self._rows_unbatched += rows
        if self._rows_unbatched >= _BATCH_STEPS:
            self._rows_unbatched -= _BATCH_STEPS
            self._due.put(None)

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                self._due.get(timeout=_WAIT_SECONDS)
            except queue.Empty:
                continue
            # Of this thread alone: it leaves out waits for the interpreter's lock.
            start = time.thread_time()
            self._make_batch()
            self._seconds += time.thread_time() - start
            self._batches += 1

    def _make_batch(self) -> None:
        while not self._batcher.is_full():
            # Slots by turns; what `_fill` has written into them stays.
            self._batcher.add(Finished(0, self._next_slot))
            self._next_slot = (self._next_slot + 1) % self._num_slots
        self._batcher.next()


class _Half(RewardKind):
    """A reward of one half for every text, looked up as a trained reward's values are."""

    def __init__(self) -> None:
        self._table = MessageTable(_halves, None)

    def lookup(self, texts: np.ndarray) -> Values:
        return self._table.lookup(texts)


def _halves(params: Any, texts: np.ndarray) -> np.ndarray:
    return np.full(len(texts), 0.5, np.float32)


def _fill(slots: Slots, spec: EnvironmentSpec, rng: np.random.Generator) -> None:
    """Writes texts as frequent as in a game, a few of them most of the time, and rare ends of
    episodes.
    """
    assert spec.text_field is not None
    text_rows = slots.observation[spec.text_field]
    rows = text_rows.shape[:-1]
    texts = np.zeros((_DISTINCT_TEXTS, text_rows.shape[-1]), np.uint8)
    texts[1:, :_TEXT_LENGTH] = rng.integers(32, 127, (_DISTINCT_TEXTS - 1, _TEXT_LENGTH))
    ranks = rng.zipf(1.3, rows) - 1
    text_rows[...] = texts[np.minimum(ranks, _DISTINCT_TEXTS - 1)]
    if spec.count_field is not None:
        slots.observation[spec.count_field][...] = rng.integers(1, 50, rows)
    for name in ("first", "last", "episode", "truncated"):
        slots.arrays[name][...] = 0
    slots.terminated[...] = rng.random(rows) < 1 / _STEPS_OF_AN_EPISODE
