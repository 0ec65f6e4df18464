"""What may run at the same time: updates are held, and it is looked at what the other parts can do
meanwhile.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.devices.meters import Meters, system_metrics
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.interruption import Patience, StoppedError
from motif_jax.rl import batch_stream, settings
from motif_jax.rl import learner as learner_module
from motif_jax.rl.algorithms.algorithm import Algorithm
from motif_jax.rl.algorithms.appo import AppoTrainState
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.batch_stream import BatchStream
from motif_jax.rl.batcher import Batch
from motif_jax.rl.inference import Inference, Publisher
from motif_jax.rl.learner import Averages, Learner
from motif_jax.rl.system import System
from tests.play.agent_runs import recall_training
from tests.processes import wait_until
from tests.rl.runs import column

SECONDS = 60.0


class Held:
    """Stands for the metrics of an update that runs until it is let go."""

    def __init__(self) -> None:
        self.waited_for = threading.Event()
        self.done = threading.Event()

    def is_ready(self) -> bool:
        return self.done.is_set()

    def block_until_ready(self) -> Held:
        self.waited_for.set()
        assert self.done.wait(SECONDS)
        return self

    def copy_to_host_async(self) -> None:
        pass

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.zeros(0, np.float32)


class HeldUpdates:
    """In place of the learner's program: every launch gives a `Held`, and changes nothing."""

    def __init__(self) -> None:
        self.launched: list[Held] = []

    def __call__(self, state: AppoTrainState, batch: Any) -> tuple[AppoTrainState, Any]:
        assert self.running() == 0, (
            "an update is launched behind another: inference would wait for both"
        )
        self.launched.append(Held())
        return state, self.launched[-1]

    def running(self) -> int:
        return sum(not held.done.is_set() for held in self.launched)


BATCH = Batch(None, 1, [])  # type: ignore[arg-type]


class Unused(Algorithm):
    """The algorithm of a learner whose program is replaced."""

    def init(self, key: jax.Array) -> Any:
        raise NotImplementedError

    def update(self, state: Any, batch: Any, *, axis_name: str | None = None) -> Any:
        raise NotImplementedError


def made(kind: type[Algorithm]) -> Algorithm:
    """An algorithm that reads neither a config, a network nor an optimiser."""
    nothing: Any = None
    return kind(nothing, nothing, nothing)


def in_thread(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def held_learner(updates: HeldUpdates) -> Learner:
    """A learner whose updates run until they are let go."""
    publisher = Publisher(jax.devices()[:1], lambda params: params)
    zero = jnp.zeros((), jnp.int32)
    state = AppoTrainState(
        {"w": jnp.ones(3)}, (), zero, jnp.zeros(2, jnp.int32), jax.random.PRNGKey(0), ()
    )  # type: ignore[arg-type]
    parallel = DataParallel(jax.devices()[:1])
    learner = Learner(made(Unused), state, parallel, publisher, Meters())
    learner.update_program = updates
    return learner


def test_a_stop_waits_for_an_update_with_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "SECONDS", 0.3)
    updates = HeldUpdates()
    learner = held_learner(updates)
    is_asked = threading.Event()
    learner.patience = Patience(is_asked.is_set)
    learner.step(BATCH)
    start = time.monotonic()
    threading.Timer(0.2, is_asked.set).start()

    with pytest.raises(StoppedError):
        learner.finish_update()
    assert time.monotonic() - start > 0.5

    # An update that ends in time is waited for.
    learner.patience = Patience(is_asked.is_set)
    threading.Timer(0.1, updates.launched[0].done.set).start()
    learner.finish_update()
    assert learner.version == 1


def test_an_update_waits_for_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    parallel = DataParallel(jax.devices()[:1])
    meters = Meters()
    updates = HeldUpdates()
    publisher = Publisher(jax.devices()[:1], lambda params: params)
    zero = jnp.zeros((), jnp.int32)
    state = AppoTrainState(
        {"w": jnp.ones(3)}, (), zero, jnp.zeros(2, jnp.int32), jax.random.PRNGKey(0), ()
    )  # type: ignore[arg-type]
    learner = Learner(made(Unused), state, parallel, publisher, meters)
    learner.update_program = updates
    clock = [100.0]
    monkeypatch.setattr(learner_module.time, "perf_counter", lambda: clock[0])
    learner.step(BATCH)
    clock[0] = 107.0  # the host has other things to do meanwhile
    thread = in_thread(lambda: learner.step(BATCH))
    assert updates.launched[0].waited_for.wait(SECONDS)
    # Parameters can be had while it runs: those before it.
    assert publisher.newest(jax.devices()[0]).version == 0
    clock[0] = 110.0
    updates.launched[0].done.set()
    thread.join(SECONDS)
    monkeypatch.undo()
    reading = system_metrics(meters.read())
    assert reading["learner/update_seconds"] == 10.0
    assert reading["learner/late_share"] == 0.0
    assert reading["learner/wait_share"] == 0.0
    assert publisher.newest(jax.devices()[0]).version == 1
    updates.launched[1].done.set()  # before the host looks
    learner.finish_update()
    assert system_metrics(meters.read())["learner/late_share"] == 1.0


@pytest.mark.slow
def test_inference_serves_on_behind_a_held_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole system: while one update is held, actors continue until their slots are full, and
    no batch is too many.
    """
    config = settings.resolved(recall_training(actors__workers=1))
    system = System(config)
    updates = HeldUpdates()
    behind: list[int] = []
    launch = Inference.launch
    launched = lambda self, ready: (behind.append(updates.running()), launch(self, ready))[1]  # noqa: E731
    monkeypatch.setattr(Inference, "launch", launched)
    put = batch_stream.put
    transfers = []
    monkeypatch.setattr(batch_stream, "put", lambda *args: (transfers.append(1), put(*args))[1])
    with BatchStream(system) as stream:
        while (batch := stream.get()) is None:
            pass
        system.learner.update_program = updates
        system.learner.step(batch)
        waiting = threading.Event()
        limit = batch_stream.MAX_WAITING_BATCHES
        thread = in_thread(lambda: (stream.get(), system.learner.step(batch), waiting.set()))
        assert updates.launched[0].waited_for.wait(SECONDS)
        before = len(behind)
        # Whatever has been played until now, actors and batcher have something to do when a batch
        # more is taken.
        wait_until(lambda: stream.waiting() == limit, "a batch waits", SECONDS)
        assert stream.get() is not None
        wait_until(lambda: stream.waiting() == limit, "the next one waits", SECONDS)
        wait_until(
            lambda: len(behind) > before, "inference serves while the update is held", SECONDS
        )
        assert not waiting.is_set()
        assert system.publisher.newest(jax.devices()[0]).version == 0
        assert len(updates.launched) == 1
        # The batch that is learned from, two that were taken, and those that wait.
        assert len(transfers) <= 3 + limit
        for held in updates.launched:
            held.done.set()
        thread.join(SECONDS)
        assert len(updates.launched) == 2
        updates.launched[1].done.set()
        system.learner.finish_update()
    assert max(behind) == 1


class Memory(NamedTuple):
    """A training state with all fields that a skipped update treats specially."""

    params: Any
    step: Any
    env_steps: Any
    memory: Any
    frozen: Any = ()


class Adding(Unused):
    """Adds the intrinsic reward to the parameters; the loss is the task's reward."""

    def update(self, state: Memory, batch: TrajectoryBatch, *, axis_name: str | None = None) -> Any:
        loss, change = (jnp.mean(x) for x in (batch.reward, batch.intrinsic_reward))
        metrics = {"value/mean": 7.0 + loss, "lag/max": 2 * change, "loss/total": loss}
        params = {"w": state.params["w"] + change}
        numbers = (state.step + 1, state.env_steps + 5)
        return Memory(params, *numbers, state.memory + change, state.frozen), metrics | {
            "episode/x": jnp.log(-1.0)
        }


def test_a_nonfinite_update_changes_counts_and_memory_alone() -> None:
    parallel = DataParallel(jax.devices()[:1])
    meters = Meters()
    device = jax.devices()[0]
    state = Memory(
        {"w": jnp.ones(3)}, jnp.int32(4), jnp.int32(10), jnp.zeros(2), {"f": jnp.full(2, 9.0)}
    )
    publisher = Publisher([device], lambda params: params)
    learner = Learner(made(Adding), state, parallel, publisher, meters, shares_frozen=True)
    batches = []
    outcomes = []  # metrics, state and published parameters after each update
    for loss, change in ((0.5, 1.0), (jnp.nan, 2.0), (0.5, jnp.inf), (0.25, 4.0)):
        rows = column([0, 0], [0, 0], [0, 0], intrinsic=change)
        rows = rows._replace(reward=np.full_like(rows.intrinsic_reward, loss))
        batches.append(batch_stream.put(Batch(rows, 2, []), parallel))
        learner.step(batches[-1])
        assert learner.metrics() == {}
        learner.finish_update()
        learner.finish_update()
        outcome = (
            learner.metrics(),
            jax.device_get(learner.state),
            jax.device_get(publisher.newest(device)),
        )
        outcomes.append(json.loads(json.dumps(outcome, default=np.ndarray.tolist)))
        assert learner.metrics() == {}
    assert math.isnan(outcomes[0][0].pop("episode/x") + outcomes[3][0].pop("episode/x"))
    frozen = {"f": [9.0] * 2}
    inf = [math.inf] * 2
    for metrics, w, version, memory, outcome in (
        ({"value/mean": 7.5, "lag/max": 2.0, "loss/total": 0.5}, 2.0, 5, [1.0] * 2, outcomes[0]),
        ({}, 2.0, 6, [3.0] * 2, outcomes[1]),
        ({}, 2.0, 7, inf, outcomes[2]),
        ({"value/mean": 7.25, "lag/max": 8.0, "loss/total": 0.25}, 6.0, 8, inf, outcomes[3]),
    ):
        params = {"w": [w] * 3}
        state = [params, version, 5 * version - 10, memory, frozen]
        assert outcome == [metrics, state, [version, params | frozen]]
    assert learner.failures == [
        (5, ["loss/total", "value/mean"], batches[1]),
        (6, ["the parameters that it gives"], batches[2]),
    ]
    assert [batch.num_bytes for batch in batches] == [39] * 4
    sums, counts, _, _ = meters.read()
    assert (sums["learner/updates"], sums["learner/bytes"], counts["learner/update"]) == (4, 156, 4)


def test_the_log_has_means_and_the_extremes_of_extremes() -> None:
    averages = Averages()
    averages.add(
        {"loss/policy": 1.0, "lag/max": 7.0, "policy/ratio_min": 0.5, "policy/ratio_max": 2.0}
    )
    averages.add({})
    averages.add(
        {"loss/policy": 2.0, "lag/max": 3.0, "policy/ratio_min": 0.9, "policy/ratio_max": 1.5}
    )
    expected = {
        "loss/policy": 1.5,
        "lag/max": 7.0,
        "policy/ratio_min": 0.5,
        "policy/ratio_max": 2.0,
    }
    assert averages.read() == expected
    assert averages.read() == {}
