"""Batches in turns with acting, and ahead of the learner: with parts that do what the test says."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.core.devices.meters import Meters
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.rl import batch_stream
from motif_jax.rl.actors.rollouts import Ready
from motif_jax.rl.batch_stream import BatchStream
from motif_jax.rl.batcher import Batch
from motif_jax.rl.reward_lookup import IntrinsicReturn
from tests.play.agent_runs import recall_training
from tests.rl.runs import column


class Parts:
    """Stands for a system whose batcher makes a batch of two slots; a source finishes as many as `serves` says."""

    def __init__(self, serves: list[int], **changes: Any) -> None:
        self.config, self.said, self.serves = recall_training(**changes), list[Any](), serves
        self.finished: Any = queue.SimpleQueue()
        self.meters, self.parallel, self.taken, self.made = Meters(), DataParallel(jax.devices()[:1]), 0, 0
        inference = SimpleNamespace(serve=self.serve)
        self.sources, self.finished_slots = [SimpleNamespace(inference=inference)] * 2, [[1, 0], [0, 1]]
        self.learner, self.batcher = SimpleNamespace(settle=lambda: self.said.append("settled")), self

    def serve(self, timeout: float, hold: Any) -> int:
        groups = [Ready(group, 0, row) for group in range(2) for row in range(2)]
        self.said.append([timeout, hold and [hold(each) for each in groups]])
        served = self.serves.pop(0)
        for slot in range(served):
            self.finished.put(slot)
        return served

    def note_play(self) -> None:
        self.said.append("noted")

    def add(self, slot: int) -> None:
        self.taken += 1

    def is_full(self) -> bool:
        return self.taken >= 2

    def next(self) -> Batch:
        self.taken, self.made = self.taken - 2, self.made + 1
        return Batch(column([1], [0], [0]), self.made, [IntrinsicReturn(0, self.made, 0.5)])


def test_batches_in_turns() -> None:
    serial = Parts([0, 1, 3, 0], serial=True)
    stream = BatchStream(serial)  # type: ignore[arg-type]
    found = [stream.get() for _ in range(2)]
    assert [batch and batch.num_steps for batch in found] == [1, 2]
    # What is full already needs nobody to act: of four slots two batches are made.
    assert serial.said == ["settled", [0.1, None], [0.1, None], [0.1, None], [0.1, None], "settled"]
    played = Parts([1, 0, 0, 0, 1, 2], on_policy=True)
    stream = BatchStream(played)  # type: ignore[arg-type]
    assert stream.get() is None
    # A group at row 0 that has played a slot more than batches were made waits, each source's for itself.
    turn = [[0.1, [True, False, False, False]], [0.1, [False, False, True, False]]]
    assert played.said == ["settled", *turn, *turn]
    batch = stream.get()
    assert batch is not None
    assert batch.num_bytes > 0
    assert played.said[5:] == ["settled", *turn, "noted"]
    hold = stream._hold(0)
    assert hold is not None
    assert not hold(Ready(0, 0, 0))


def test_batches_ahead_of_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_stream, "_WAIT_SECONDS", 0.01)
    system = Parts([], max_waiting_batches=2)
    stream = BatchStream(system)  # type: ignore[arg-type]
    for slot in range(7):
        system.finished.put(slot)
    assert stream.get() is None
    assert system.said == ["settled"]
    for made, waiting in enumerate([0, 0, 1, 1, 1, 2, 2, 2, 2]):
        stream.assemble()
        assert stream.waiting() == waiting, made
    assert (system.made, system.finished.qsize()) == (2, 1), "there is no room for a third"
    first = stream.get()
    assert first is not None
    assert (first.num_steps, system.said) == (1, ["settled"])
    np.testing.assert_array_equal(first.trajectories.action, [[[1]]])
    stream.assemble()
    assert stream.waiting() == 2
    assert stream.rest() == [IntrinsicReturn(0, 2, 0.5), IntrinsicReturn(0, 3, 0.5)]
    assert stream.waiting() == 0
    _, counts, _, _ = system.meters.read()
    assert counts == {"learner/wait": 2, "batcher/wait": 6, "batcher/blocked": 4, "batcher/put": 3}
