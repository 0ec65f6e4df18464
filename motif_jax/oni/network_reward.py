"""The base of classification and ranking: online rewards from a network that is trained on the
labels.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import seeds
from motif_jax.core.devices.cpu import cpu_device
from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.oni import reward_schedule
from motif_jax.oni.label_queue import Label
from motif_jax.oni.label_set import WIDTH, LabelSet
from motif_jax.oni.message_stats import NO_LABEL
from motif_jax.oni.online import OnlineReward
from motif_jax.oni.reward_schedule import Schedule, draws
from motif_jax.oni.reward_trainer import METRICS, Model, Trainer, TrainingJob
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.intrinsic import ObservationSpec, RewardSetup
from motif_jax.rl.message_table import MessageTable, Values

# Texts whose values the table caches.
CAPACITY = 1 << 16


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
        epochs = self.epochs and training.schedule == "published" and size < reward_schedule.LARGE
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
    """`new` with the dtype and on the device of `old`. Raises ValueError: it has another shape."""
    if np.shape(old) != np.shape(new):
        raise ValueError(
            f"a reward's parameters of shape {np.shape(new)} in place of {np.shape(old)}"
        )
    (device,) = old.devices()
    return jax.device_put(np.asarray(new, old.dtype), device)
