"""Batches in turns with acting, and ahead of the learner, with stand-ins for the system's parts."""

from __future__ import annotations

import queue
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.core.devices.meters import Meters
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.interruption import Patience, StoppedError
from motif_jax.rl import batch_stream
from motif_jax.rl.actors.rollouts import Ready
from motif_jax.rl.batch_stream import BatchStream
from motif_jax.rl.batcher import Batch
from motif_jax.rl.reward_lookup import IntrinsicReturn
from tests.play.agent_runs import recall_training
from tests.rl.runs import column


class Parts:
    """Stands for a system whose batcher makes a batch of two slots.

    Args:
      serves: how many slots each call of inference finishes.
    """

    def __init__(self, serves: list[int], **changes: Any) -> None:
        self.config = recall_training(**changes)
        # 'finished', 'noted', or the timeout of a call of inference and which of four groups it
        # holds.
        self.calls: list[Any] = []
        self.serves = serves
        self.finished: Any = queue.SimpleQueue()
        self.meters = Meters()
        self.parallel = DataParallel(jax.devices()[:1])
        self.slots_in_batcher = 0
        self.batches = 0
        # Two sources, whose inference is this object, too.
        self.inference = self
        self.sources = [self, self]
        self.finished_slots = [[1, 0], [0, 1]]
        self.learner = self
        self.batcher = self

    def finish_update(self) -> None:
        self.calls.append("finished")

    def serve(self, timeout: float, hold: Any) -> int:
        groups = [Ready(group, 0, row) for group in range(2) for row in range(2)]
        self.calls.append([timeout, hold and [hold(ready) for ready in groups]])
        served = self.serves.pop(0)
        for slot in range(served):
            self.finished.put(slot)
        return served

    def add(self, slot: int) -> None:
        self.slots_in_batcher += 1

    def is_full(self) -> bool:
        return self.slots_in_batcher >= 2

    def next(self) -> Batch:
        self.slots_in_batcher -= 2
        self.batches += 1
        return Batch(column([1], [0], [0]), self.batches, [IntrinsicReturn(0, self.batches, 0.5)])


def test_a_full_batch_needs_no_acting() -> None:
    parts = Parts([0, 1, 3, 0], serial=True)
    stream = BatchStream(parts)  # type: ignore[arg-type]

    batches = [stream.get() for _ in range(2)]

    assert [batch and batch.num_steps for batch in batches] == [1, 2]
    # Of the four slots of the first turns two batches are made.
    assert parts.calls == [
        "finished",
        [0.1, None],
        [0.1, None],
        [0.1, None],
        [0.1, None],
        "finished",
    ]


def test_a_rollout_that_takes_long_is_left_at_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "SECONDS", -1.0)
    parts = Parts([0] * 4, serial=True)
    asked = iter([False, True])
    stream = BatchStream(parts, patience=Patience(lambda: next(asked)))  # type: ignore[arg-type]

    with pytest.raises(StoppedError):
        stream.get()

    assert parts.calls == ["finished", [0.1, None], [0.1, None]], "the first turn is played"


# A call of inference on policy: the two groups of the source by row 0 and 1, of which some have to
# wait.
NOBODY_WAITS = [0.1, [False, False, False, False]]
FIRST_GROUP_WAITS = [0.1, [True, False, False, False]]
SECOND_GROUP_WAITS = [0.1, [False, False, True, False]]


def test_on_policy_groups_wait_for_the_next_parameters() -> None:
    """A group at row 0 that has filled a slot more than there were batches waits, separately for
    each source.
    """
    parts = Parts([1, 0, 0, 0], on_policy=True)
    stream = BatchStream(parts)  # type: ignore[arg-type]

    assert stream.get() is None

    turn = [FIRST_GROUP_WAITS, SECOND_GROUP_WAITS]
    assert parts.calls == ["finished", *turn, *turn]


def test_on_policy_groups_continue_after_the_next_batch() -> None:
    parts = Parts([2, 0, 0, 0], on_policy=True)
    stream = BatchStream(parts)  # type: ignore[arg-type]

    batch = stream.get()

    assert batch is not None
    assert batch.num_bytes > 0
    assert parts.calls == ["finished", FIRST_GROUP_WAITS, SECOND_GROUP_WAITS]
    assert stream.get() is None
    assert parts.calls[3:] == ["finished", NOBODY_WAITS, NOBODY_WAITS]


System = tuple[Parts, BatchStream]


@pytest.fixture
def threaded(monkeypatch: pytest.MonkeyPatch) -> System:
    """A system with room for two batches ahead of the learner, and seven finished slots; its
    stream.
    """
    monkeypatch.setattr(batch_stream, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(batch_stream, "MAX_WAITING_BATCHES", 2)
    system = Parts([])
    for slot in range(7):
        system.finished.put(slot)
    return system, BatchStream(system)  # type: ignore[arg-type]


@pytest.fixture
def ahead(threaded: System) -> System:
    """The system and its stream after the threads have filled the room: one slot is left."""
    _, stream = threaded
    for _ in range(9):
        stream.assemble()
    return threaded


def test_a_learner_without_a_batch_finishes_its_update(threaded: System) -> None:
    system, stream = threaded

    assert stream.get() is None

    assert system.calls == ["finished"]


def test_two_slots_make_a_batch_that_is_then_put(threaded: System) -> None:
    _, stream = threaded
    waiting = []
    for _ in range(9):
        stream.assemble()
        waiting.append(stream.waiting())

    assert waiting == [0, 0, 1, 1, 1, 2, 2, 2, 2]


def test_threads_make_no_more_batches_than_there_is_room(ahead: System) -> None:
    system, _ = ahead

    assert system.batches == 2
    assert system.finished.qsize() == 1


def test_the_learner_gets_the_oldest_batch_without_waiting(ahead: System) -> None:
    system, stream = ahead

    first = stream.get()

    assert first is not None
    assert first.num_steps == 1
    assert system.calls == []
    np.testing.assert_array_equal(first.trajectories.action, [[[1]]])


def test_a_batch_that_was_taken_makes_room_for_another(ahead: System) -> None:
    _, stream = ahead

    stream.get()
    stream.assemble()

    assert stream.waiting() == 2


def test_the_rest_of_a_stream_is_its_batches_returns(ahead: System) -> None:
    _, stream = ahead
    stream.get()
    stream.assemble()

    assert stream.rest() == [IntrinsicReturn(0, 2, 0.5), IntrinsicReturn(0, 3, 0.5)]
    assert stream.waiting() == 0


def test_meters_count_the_waits_of_learner_and_threads(ahead: System) -> None:
    system, stream = ahead

    stream.get()
    stream.assemble()

    _, counts, _, _ = system.meters.read()
    assert counts == {"learner/wait": 1, "batcher/wait": 6, "batcher/blocked": 4, "batcher/put": 3}
