"""The base of classification and ranking: online rewards from a network that is trained on the
labels so far.

In the order in which a label goes: `LabelSet` holds the labels as training data, `Schedule` says
how many gradient steps they call for and `draws` which labels each step sees, `Trainer` takes the
steps in a thread or at once, `NetworkReward` pays by their parameters.
"""

from __future__ import annotations

import abc
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from motif_jax.core import config as checks
from motif_jax.core import seeds, text_bytes
from motif_jax.core.devices.parallel import cpu_device
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError, never
from motif_jax.core.training import ensembles
from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.motif.reward.reward_model import SHORT_MESSAGE
from motif_jax.oni.label_queue import Label
from motif_jax.oni.message_stats import NO_LABEL
from motif_jax.oni.online import OnlineReward
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.intrinsic import ObservationSpec, RewardSetup
from motif_jax.rl.message_table import MessageTable, Values

# Bytes of a text that reward networks read.
WIDTH = 256
# Examples, and distinct texts, of a fresh set's arrays, which are doubled when they are full.
_FIRST_ROOM = 256
# Published: with at least so many labels, steps no longer follow arrivals.
LARGE = 25_000
# Steps still to be taken; more are dropped, since labels come faster than training.
MAX_OWED = 1024
# Of the metrics of a step, those whose means a job reports.
METRICS = ("loss", "accuracy", "gradient_norm")
# Texts whose values the table caches.
CAPACITY = 1 << 16


class Examples(NamedTuple):
    """The first examples of a set; nothing in it changes when the set grows.

    Attributes:
      messages: uint8 [M, 256], distinct texts, padded with zeros.
      rows: int32 [N, items], the rows of `messages` that hold an example's texts.
      labels: int8 [N], index of the verdict in its form.
      targets: float32 [N], the probability of yes, or of the first of two, to be learned.
    """

    messages: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    targets: np.ndarray


class LabelSet:
    """Grows by labels, whose order is that of the label log. One thread adds; any thread reads the
    result of `first`.

    Args:
      items: texts of an example.
      certain: the target of each label.
      soft: whether the annotator's probability, where there is one, is the target.
    """

    def __init__(self, items: int, certain: tuple[float, ...], soft: bool) -> None:
        self._certain = certain
        self._soft = soft
        self._size = 0
        # Text -> its row in `_messages`.
        self._row_of: dict[str, int] = {}
        self._messages = np.zeros((_FIRST_ROOM, WIDTH), np.uint8)
        self._rows = np.zeros((_FIRST_ROOM, items), np.int32)
        self._labels = np.zeros(_FIRST_ROOM, np.int8)
        self._targets = np.zeros(_FIRST_ROOM, np.float32)

    def __len__(self) -> int:
        return self._size

    def add(self, label: Label) -> None:
        """Adds an example after the others, whose arrays do not change: a training may read them
        meanwhile.
        """
        size = self._size
        if size == len(self._labels):
            # New arrays, since a running training reads the old ones.
            self._rows = _doubled(self._rows)
            self._labels = _doubled(self._labels)
            self._targets = _doubled(self._targets)
        self._rows[size] = [self._row(text) for text in label.items]
        self._labels[size] = label.label
        if self._soft and label.probability is not None:
            self._targets[size] = label.probability
        else:
            self._targets[size] = self._certain[label.label]
        self._size += 1

    def _row(self, text: str) -> int:
        """The row of a text, which is added if it is new."""
        row = self._row_of.get(text)
        if row is None:
            row = len(self._row_of)
            self._row_of[text] = row
            if row == len(self._messages):
                self._messages = _doubled(self._messages)
            self._messages[row] = text_bytes.padded_rows([text], WIDTH)[0]
        return row

    def first(self, size: int) -> Examples:
        """The first `size` examples, as views."""
        return Examples(
            self._messages, self._rows[:size], self._labels[:size], self._targets[:size]
        )


def _doubled(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, np.zeros_like(array)])


class Schedule:
    """Counts the gradient steps that labels call for: those still `owed`, and those `dropped`
    beyond `MAX_OWED`.

    `arrived` counts labels whose steps are not owed yet.

    'budget': labels that arrive in one update call for `per_arrival` steps together, of which at
    most `per_update` are taken an update. 'published': all in one piece; from 25,000 labels on, one
    step an update (the published code trains at exactly 25,000 in neither way). Here an arrival is
    a call of up to `call` questions, answered together; single answers count as one arrival when
    `call` have come or none is pending.
    """

    def __init__(self, name: str, per_arrival: int, per_update: int, call: int) -> None:
        self._published = name == "published"
        self._per_arrival = per_arrival
        self._per_update = per_update
        self._call = call
        self.owed = 0
        self.dropped = 0
        self.arrived = 0

    def update(self, new_labels: int, size: int, asking: int) -> None:
        """Called once per update: `new_labels` have arrived (published: answers), there are `size`
        in all, and `asking` questions are pending.
        """
        if self._published and size >= LARGE:
            self.owed = 1
            self.arrived = 0
            return

        self.arrived += new_labels
        is_incomplete_call = self._published and asking and self.arrived < self._call
        if not self.arrived or is_incomplete_call:
            return
        self.arrived = 0
        total = self.owed + self._per_arrival
        # An arrival's own steps are never dropped.
        self.owed = min(total, max(MAX_OWED, self._per_arrival))
        self.dropped += total - self.owed

    def amount(self) -> int:
        """Steps of the next job: few, so that it ends before the labels of many calls have come."""
        return min(self.owed, self._per_arrival if self._published else self._per_update)

    def count_taken(self, amount: int) -> None:
        """Counts steps that were taken."""
        self.owed = max(0, self.owed - amount)


def draws(
    seed: int, first: int, amount: int, size: int, batch_size: int, epochs: bool
) -> Iterator[np.ndarray]:
    """Indices int64 [n] of the labels, of `size`, of each of `amount` steps, n at most
    `batch_size`.

    Args:
      first: steps of the run before them.
      epochs: True: shuffled epochs from the first step, the last batch of each smaller (published
        for the classifier below 25,000). False: a fresh uniform batch without replacement each
        step.
    """
    if not epochs:
        for step in range(first, first + amount):
            # A generator for each step: a resumed run draws as the undisturbed one.
            rng = seeds.rng(seed, "reward batch", step)
            yield rng.permutation(size)[:batch_size]
        return
    rng = seeds.rng(seed, "reward epochs", first)
    # As published, epochs begin anew at each arrival.
    order = rng.permutation(size)
    start = 0
    for _ in range(amount):
        if start >= size:
            order = rng.permutation(size)
            start = 0
        yield order[start : start + batch_size]
        start += batch_size


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


class NetworkReward(OnlineReward, abc.ABC):
    """An online reward with a network, after `taken` gradient steps. Before, it is 0, unless a
    fresh network pays (published).

    Attributes:
      certain: class attribute, the target of each label of the form.
      epochs: class attribute, whether below 25,000 labels the steps of an arrival run through
          shuffled epochs (published).
      taken: gradient steps whose parameters pay.
      trainer: trains the network, beside the caller except in serial runs.
    """

    certain: tuple[float, ...]
    epochs = False
    scores_questions = True

    def __init__(self, setup: RewardSetup) -> None:
        super().__init__(setup)
        run = self.run.config
        training = self.config.training
        self.labels = LabelSet(len(self.form.items), self.certain, training.target == "probability")
        self.schedule = Schedule(
            training.schedule,
            training.steps_per_arrival,
            training.steps_per_update,
            run.queue.batch,
        )
        self._device = setup.device or cpu_device()
        self._pays_untrained = run.compat.oni_untrained_reward

        self.model = self.make_model()
        state = self.model.init(seeds.derive(run.seed, "reward") % (1 << 31))
        # It trains on the device that pays.
        state = jax.device_put(state, self._device)
        # A serial run trains in the caller's thread, so that the outcome is there when the batch is
        # paid.
        self.trainer = Trainer(self.model, state, training.batch_size, in_thread=not run.serial)
        self.taken = 0
        # Labels that a finished job has measured before it trained on them.
        self._measured = 0
        # Since the last row of metrics: correct and counted labels before their training, and
        # seconds of training.
        self._correct = 0
        self._counted = 0
        self._training_seconds = 0.0
        self._last_means = dict.fromkeys(METRICS, 0.0)
        self.table = MessageTable(self.compute, self._params(), 0, CAPACITY)

    @classmethod
    def check_run(cls, config: AgentConfig, spec: ObservationSpec) -> None:
        super().check_run(config, spec)
        assert spec.text_field is not None
        width = spec.observation[spec.text_field].shape[-1]
        allowed = f"a task whose texts have at most {WIDTH} bytes, not {width}"
        checks.require(width <= WIDTH, "environment.name", config.environment.name, allowed)

    @abc.abstractmethod
    def make_model(self) -> Model:
        """The model that learns from the labels."""

    @abc.abstractmethod
    def compute(self, params: Any, texts: np.ndarray) -> np.ndarray:
        """Values float32 [N] of texts uint8 [N, L], for the table."""

    @abc.abstractmethod
    def reward_of(self, raw: np.ndarray) -> np.ndarray:
        """The rewards float32 [N] of the table's values float32 [N]."""

    def lookup(self, texts: np.ndarray) -> Values:
        if not self.pays:
            return Values(np.zeros(len(texts), np.float32), self.version)
        return Values(self.reward_of(self.table.lookup(texts).values), self.version)

    @property
    def pays(self) -> bool:
        """Whether the network pays: after its first training, or from the start as published."""
        return self.taken > 0 or self._pays_untrained

    def start(self) -> None:
        super().start()
        # Compiles the programs of short and of long texts before the first batch.
        texts = np.zeros((2, WIDTH), np.uint8)
        texts[1] = 1
        self.compute(self.table.params, texts)

    def close(self) -> None:
        self.trainer.close()
        super().close()

    def apply_labels(self, labels: Sequence[Label]) -> list[Label]:
        """Adds labels to the data set; the first label of a text stays, as the network was trained
        on it.
        """
        new_labels = [label for label in labels if self.is_new(label)]
        for label in new_labels:
            self.labels.add(label)
        return new_labels

    def is_new(self, label: Label) -> bool:
        """Marks a label's texts; returns whether they had no label."""
        row = self.stats.rows(label.items, label.step, label.update_index)[0]
        if self.stats.label[row] != NO_LABEL:
            return False
        self.stats.label[row] = label.label
        return True

    def advance(self, arrived: int) -> bool:
        if self.config.training.schedule == "published":
            # A call of answers is an arrival, whether or not their texts had labels.
            arrived = self.answered
        self.schedule.update(arrived, len(self.labels), self.asking)
        changed = self._collect()
        # After the outcome was collected, so that the next job may begin at once.
        amount = self.schedule.amount()
        if amount and self.trainer.running is None:
            self.trainer.begin(self._job(amount, len(self.labels)))
            # In a serial run the job has ended already.
            changed = self._collect() or changed
        return changed

    def _job(self, amount: int, size: int) -> TrainingJob:
        """The next `amount` gradient steps, on the first `size` labels."""
        training = self.config.training
        epochs = self.epochs and training.schedule == "published" and size < LARGE
        # By the number of the first step, so that a resumed run draws the same.
        batches = draws(self.run.config.seed, self.taken, amount, size, training.batch_size, epochs)
        unmeasured = np.arange(self._measured, size)
        return TrainingJob(self.taken, list(batches), self.labels.first(size), unmeasured)

    def _collect(self) -> bool:
        """Pays by the trained parameters from now on; False where no gradient steps have ended."""
        outcome = self.trainer.take()
        if outcome is None:
            return False
        amount = len(outcome.job.draws)
        self.schedule.count_taken(amount)
        # Labels are measured once, before a step has learned them.
        self._measured = len(outcome.job.examples.labels)
        self._training_seconds += outcome.seconds
        self._correct += outcome.correct
        self._counted += outcome.counted
        self._last_means = outcome.means
        self.taken = outcome.job.first + amount
        self.table.swap(self._params(), self.taken)
        return True

    def _params(self) -> Any:
        return jax.device_put(self.trainer.state.params, self._device)

    def own_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        state = self.trainer.state
        # By number, since the optimiser's state is not a tree of names; with zeros, so that the
        # names sort as the numbers do.
        leaves = enumerate(jax.tree.leaves(state.opt_state))
        optimizer = {f"{index:03d}": np.asarray(leaf) for index, leaf in leaves}
        arrays = {"params": jax.tree.map(np.asarray, state.params), "optimizer": optimizer}
        data = {
            "taken": self.taken,
            "tried": self._measured,
            "owed": self.schedule.owed,
            "dropped": self.schedule.dropped,
            "come": self.schedule.arrived,
        }
        return arrays, data

    def restore_own(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        state = self.trainer.state
        leaves = [arrays["optimizer"][name] for name in sorted(arrays["optimizer"])]
        opt_state = jax.tree.unflatten(jax.tree.structure(state.opt_state), leaves)
        self.trainer.state = jax.tree.map(_like, state, EnsembleState(arrays["params"], opt_state))
        self.taken = data["taken"]
        self._measured = data["tried"]
        self.schedule.owed = data["owed"]
        self.schedule.dropped = data["dropped"]
        self.schedule.arrived = data["come"]
        self.table.swap(self._params(), self.taken)

    def metrics(self) -> dict[str, float]:
        # Before the base's metrics, which restart this clock.
        seconds = self.learning.seconds()
        row = super().metrics()
        # The batcher's thread adds to these numbers.
        with self._lock:
            accuracy = self._correct / self._counted if self._counted else 0.0
            row |= {
                "reward/training_steps": float(self.taken),
                "reward/training_steps_owed": float(self.schedule.owed),
                "reward/training_steps_dropped": float(self.schedule.dropped),
                "reward/training_share": self._training_seconds / seconds,
                **{f"reward/{name}": value for name, value in self._last_means.items()},
                "reward/accuracy_before_training": accuracy,
            }
            self._correct = 0
            self._counted = 0
            self._training_seconds = 0.0
        return row


def _like(old: Any, new: Any) -> Any:
    """`new` with the dtype and on the device of `old`."""
    (device,) = old.devices()
    return jax.device_put(np.asarray(new, old.dtype), device)
