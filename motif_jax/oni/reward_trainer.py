"""Trains an online reward's network on the labels so far, in a thread or at once."""

from __future__ import annotations

import abc
import functools
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

# Of the metrics of a step, those whose means a job reports.
METRICS = ("loss", "accuracy", "gradient_norm")


class TrainingBatch(NamedTuple):
    """The examples of one step.

    Attributes:
      messages: uint8 [B, items, 256].
      labels: int8 [B].
      targets: float32 [B].
      weights: float32 [B], 0 for padding.
      length: the messages are zero from this byte on; None: 256.
    """

    messages: np.ndarray
    labels: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    length: int | None


class Model(abc.ABC):
    """A model of one text or of two, or an ensemble of such models."""

    def __init__(self, network: Any, optimizer: optax.GradientTransformation, members: int) -> None:
        self.network = network
        self.optimizer = optimizer
        self.members = members

    def init(self, seed: int) -> EnsembleState:
        """A fresh state: parameters and the optimiser's state."""
        return ensembles.init_state(
            self.network, self.optimizer, jax.random.key(seed), self.members
        )

    @abc.abstractmethod
    def step(
        self, state: EnsembleState, batch: TrainingBatch, step: int
    ) -> tuple[EnsembleState, dict[str, jax.Array]]:
        """Gradient step `step` of the run, compiled once for each length; `state` is not
        donated.
        """

    @abc.abstractmethod
    def count_correct(
        self, params: Any, examples: Examples, indices: np.ndarray
    ) -> tuple[int, int]:
        """On how many of the examples at `indices` the model agrees with the label, and how many
        count (ties do not).
        """


class TrainingJob(NamedTuple):
    """Gradient steps on the labels so far.

    Attributes:
      first: gradient steps of the run before the job.
      draws: the indices int64 [n] of the examples of each step.
      examples: all labels so far.
      new: indices of the examples that were not there at the last job.
    """

    first: int
    draws: Sequence[np.ndarray]
    examples: Examples
    new: np.ndarray


class TrainingOutcome(NamedTuple):
    """A job's outcome.

    Attributes:
      state: the parameters and the optimiser's state after the last step.
      means: means of `METRICS` over the steps.
      correct, counted: on how many of `job.new` the model agreed with the label before it trained
          on them, and how many count.
      seconds: how long the job took.
    """

    job: TrainingJob
    state: EnsembleState
    means: dict[str, float]
    correct: int
    counted: int
    seconds: float


def take_steps(
    model: Model,
    state: EnsembleState,
    job: TrainingJob,
    batch_size: int,
    stopped: Callable[[], bool] = never,
) -> TrainingOutcome:
    """Takes the steps of a job. Raises UserError: the loss is not finite; StoppedError: `stopped`
    was True between two.
    """
    begin = time.perf_counter()
    examples = job.examples
    # Before the steps, so that it is the accuracy on texts that were not learned.
    correct, counted = model.count_correct(state.params, examples, job.new)
    rows = []
    for number, indices in enumerate(job.draws, start=job.first):
        if stopped():
            raise StoppedError
        # To one size, with example 0 at weight 0: one compiled program for each length.
        padded = np.pad(indices, (0, batch_size - len(indices)))
        messages = examples.messages[examples.rows[padded]]
        # Of short texts the encoder reads the first bytes alone, with equal results.
        length = None if messages[..., SHORT_MESSAGE:].any() else SHORT_MESSAGE
        weights = (np.arange(batch_size) < len(indices)).astype(np.float32)
        batch = TrainingBatch(
            messages, examples.labels[padded], examples.targets[padded], weights, length
        )
        state, metrics = model.step(state, batch, number)
        # Waits for the step, whose loss is checked before the next one.
        rows.append({name: float(value) for name, value in metrics.items()})
        if not np.isfinite(rows[-1]["loss"]):
            raise UserError(
                f"the training of the reward diverged at its step {number} (loss {rows[-1]['loss']}): a smaller "
                "--config.reward.training.learning_rate in another --workdir"
            )
    means = {name: float(np.mean([row[name] for row in rows])) for name in METRICS}
    return TrainingOutcome(job, state, means, correct, counted, time.perf_counter() - begin)


class Trainer:
    """Runs one job at a time, with `in_thread` in a thread of its own; `state` is that after the
    last job that `take` returned.
    """

    def __init__(
        self, model: Model, state: EnsembleState, batch_size: int, in_thread: bool
    ) -> None:
        self._model = model
        self.state = state
        self._batch_size = batch_size
        self._pool = ThreadPoolExecutor(1, "reward training") if in_thread else None
        self._closing = threading.Event()
        self.running: Future[TrainingOutcome] | None = None

    def begin(self, job: TrainingJob) -> None:
        """Starts a job in the thread; without one, runs it now."""
        work = functools.partial(
            take_steps, self._model, self.state, job, self._batch_size, self._closing.is_set
        )
        if self._pool is not None:
            self.running = self._pool.submit(work)
        else:
            self.running = Future()
            self.running.set_result(work())

    def take(self) -> TrainingOutcome | None:
        """The finished job's outcome, None if there is none; the trainer adopts its state."""
        if self.running is None or not self.running.done():
            return None
        outcome = self.running.result()
        self.running = None
        # Not before: while a job runs, checkpoints hold the state that pays.
        self.state = outcome.state
        return outcome

    def close(self) -> None:
        """Ends the running job after its current step; its outcome is lost."""
        self._closing.set()
        if self._pool is not None:
            self._pool.shutdown()
