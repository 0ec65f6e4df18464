"""Trains an online reward's network on the labels so far, in a thread or at once."""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError, never
from motif_jax.core.training import ensembles
from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.motif.reward.reward_model import SHORT_MESSAGE
from motif_jax.oni.label_set import Examples

METRICS = ("loss", "accuracy", "gradient_norm")


class TrainingBatch(NamedTuple):
    """Messages uint8 [B, items, 256], zero from byte `length` on; the rest [B] as of `Examples`, weight 0 for padding."""

    messages: np.ndarray
    labels: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    length: int | None


class Model(abc.ABC):
    """A model of one text or of two, or an ensemble of such models."""

    def __init__(self, network: Any, optimizer: optax.GradientTransformation, members: int) -> None:
        self.network, self.optimizer, self.members = network, optimizer, members

    def init(self, seed: int) -> EnsembleState:
        return ensembles.init_state(self.network, self.optimizer, jax.random.key(seed), self.members)

    @abc.abstractmethod
    def step(
        self, state: EnsembleState, batch: TrainingBatch, step: int
    ) -> tuple[EnsembleState, dict[str, jax.Array]]:
        """Gradient step `step` of the run, compiled once for each length; `state` is not donated."""

    @abc.abstractmethod
    def right(self, params: Any, examples: Examples, chosen: np.ndarray) -> tuple[int, int]:
        """How many of the chosen examples the model has right, and how many count."""


class TrainingJob(NamedTuple):
    """Gradient steps after the run's `first` ones: the examples of each; `new` are those that no step has drawn from yet."""

    first: int
    draws: Sequence[np.ndarray]
    examples: Examples
    new: np.ndarray


class TrainingOutcome(NamedTuple):
    """A job's outcome: means of `METRICS` over its steps, and how many of `job.new` the model had right before."""

    job: TrainingJob
    state: EnsembleState
    means: dict[str, float]
    right: int
    counted: int
    seconds: float


def take_steps(
    model: Model, state: EnsembleState, job: TrainingJob, batch_size: int, stopped: Callable[[], bool] = never
) -> TrainingOutcome:
    """Takes the steps of a job. Raises UserError: the loss is not finite; StoppedError: `stopped` was True between two."""
    begin, examples = time.perf_counter(), job.examples
    right, counted = model.right(state.params, examples, job.new)
    rows = []
    for number, chosen in enumerate(job.draws, start=job.first):
        if stopped():
            raise StoppedError
        padded = np.pad(chosen, (0, batch_size - len(chosen)))
        messages = examples.messages[examples.places[padded]]
        length = None if messages[..., SHORT_MESSAGE:].any() else SHORT_MESSAGE
        weights = (np.arange(batch_size) < len(chosen)).astype(np.float32)
        batch = TrainingBatch(messages, examples.labels[padded], examples.targets[padded], weights, length)
        state, metrics = model.step(state, batch, number)
        rows.append({name: float(value) for name, value in metrics.items()})
        if not np.isfinite(rows[-1]["loss"]):
            raise UserError(
                f"the training of the reward diverged at its step {number} (loss {rows[-1]['loss']}): a smaller "
                "--config.reward.training.learning_rate in another --workdir"
            )
    means = {name: float(np.mean([row[name] for row in rows])) for name in METRICS}
    return TrainingOutcome(job, state, means, right, counted, time.perf_counter() - begin)


class Trainer:
    """Runs one job at a time, with `beside` in a thread; `state` is that after the last job that `take` returned."""

    def __init__(self, model: Model, state: EnsembleState, batch_size: int, beside: bool) -> None:
        self._model, self.state, self._batch_size = model, state, batch_size
        self._pool = ThreadPoolExecutor(1, "reward training") if beside else None
        self._closing = threading.Event()
        self.running: Future[TrainingOutcome] | None = None

    def begin(self, job: TrainingJob) -> None:
        work = self._model, self.state, job, self._batch_size, self._closing.is_set
        if self._pool is not None:
            self.running = self._pool.submit(take_steps, *work)
        else:
            self.running = Future()
            self.running.set_result(take_steps(*work))

    def take(self) -> TrainingOutcome | None:
        """The finished job's outcome, None if there is none; the trainer adopts its state."""
        if self.running is None or not self.running.done():
            return None
        outcome, self.running = self.running.result(), None
        self.state = outcome.state
        return outcome

    def close(self) -> None:
        """Ends the running job after its current step; its outcome is lost."""
        self._closing.set()
        if self._pool is not None:
            self._pool.shutdown()
