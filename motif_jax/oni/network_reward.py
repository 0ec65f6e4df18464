"""The base of classification and ranking: online rewards from a network that is trained on the labels."""

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
from motif_jax.oni.config import LearnedReward
from motif_jax.oni.label_queue import Label
from motif_jax.oni.label_set import WIDTH, LabelSet
from motif_jax.oni.message_stats import NO_LABEL
from motif_jax.oni.online import OnlineReward
from motif_jax.oni.reward_schedule import Schedule, draws
from motif_jax.oni.reward_trainer import METRICS, Model, Trainer, TrainingJob
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.intrinsic import ObservationSpec, RewardSetup
from motif_jax.rl.message_table import MessageTable, Values

CAPACITY = 1 << 16
_COUNTS = ("owed", "dropped", "come")  # attributes of the schedule that a checkpoint holds


class NetworkReward(OnlineReward, abc.ABC):
    """An online reward with a network, after `taken` gradient steps. Before, it is 0, unless a fresh network pays (published)."""

    certain: tuple[float, ...]  # the target of each label of the form
    doubts = True
    epochs = False  # published: below 25,000 labels the steps of an arrival run through shuffled epochs

    def __init__(self, setup: RewardSetup) -> None:
        super().__init__(setup)
        config, run = self.config, self.run.config
        training = config.training
        self.labels = LabelSet(len(self.form.items), self.certain, training.target == "probability")
        steps = training.steps_per_arrival, training.steps_per_update
        self.schedule = Schedule(training.schedule, *steps, run.queue.batch)
        self._device = setup.device or cpu_device()
        self._pays_untrained = run.compat.oni_untrained_reward
        self.model = self.make_model()
        state = self.model.init(seeds.derive(run.seed, "reward") % (1 << 31))
        state = jax.device_put(state, _training_device(training.device, self._device))
        # A serial run trains in the caller's thread, so that the outcome is there when the batch is paid.
        self._trainer = Trainer(self.model, state, training.batch_size, beside=not run.serial)
        self.taken = self._tried = self._right = self._counted = 0
        self._busy = 0.0
        self._last = dict.fromkeys(METRICS, 0.0)
        self.table = MessageTable(self.compute, self._params(), 0, CAPACITY)

    @classmethod
    def check(cls, config: LearnedReward) -> None:
        training, place = config.training, config.training.device
        good = training.members > 1 or training.deviations == 0
        checks.require(good, "reward.training.deviations", training.deviations, "0 without several members")
        good = place == "auto" or checks.is_natural(str(place))
        checks.require(good, "reward.training.device", place, "'auto' or the number of a device")

    @classmethod
    def check_run(cls, config: AgentConfig, spec: ObservationSpec) -> None:
        super().check_run(config, spec)
        assert spec.text_field is not None
        width = spec.observation[spec.text_field].shape[-1]
        allowed = f"a task whose texts have at most {WIDTH} bytes, not {width}"
        checks.require(width <= WIDTH, "environment.name", config.environment.name, allowed)
        assert isinstance(config.reward, LearnedReward)
        if config.reward.training.device != "auto":
            _training_device(config.reward.training.device, None)

    @abc.abstractmethod
    def make_model(self) -> Model:
        """The model that learns from the labels."""

    @abc.abstractmethod
    def compute(self, params: Any, texts: np.ndarray) -> np.ndarray:
        """Values float32 [N] of texts uint8 [N, L], for the table."""

    @abc.abstractmethod
    def shown(self, raw: np.ndarray) -> np.ndarray:
        """The rewards float32 [N] of the table's values."""

    def lookup(self, texts: np.ndarray) -> Values:
        if not self.trained:
            return Values(np.zeros(len(texts), np.float32), self.version)
        return Values(self.shown(self.table.lookup(texts).values), self.version)

    @property
    def trained(self) -> bool:
        return self.taken > 0 or self._pays_untrained

    def start(self) -> None:
        super().start()
        long = np.zeros((2, WIDTH), np.uint8)
        long[1] = 1
        self.compute(self.table.params, long)

    def close(self) -> None:
        self._trainer.close()
        super().close()

    def take(self, labels: Sequence[Label]) -> list[Label]:
        """Adds labels to the data set; the first label of a text stays, as the network was trained on it."""
        taken = [label for label in labels if self.is_new(label)]
        for label in taken:
            self.labels.add(label)
        return taken

    def is_new(self, label: Label) -> bool:
        """Marks a label's texts; returns whether they had no label."""
        row = self.stats.rows(label.items, label.step, label.number)[0]
        if self.stats.label[row] != NO_LABEL:
            return False
        self.stats.label[row] = label.label
        return True

    def advance(self, arrived: int) -> bool:
        self.schedule.update(arrived, len(self.labels), self.asking)
        trained = self._collect()
        if self._trainer.running is None and (amount := self.schedule.amount()):
            self._trainer.begin(self._job(amount, len(self.labels)))
            trained = self._collect() or trained
        return trained

    def _job(self, amount: int, size: int) -> TrainingJob:
        config, epochs = self.config.training, self.epochs and self.config.training.schedule == "published"
        epochs = epochs and size < reward_schedule.LARGE
        chosen = draws(self.run.config.seed, self.taken, amount, size, config.batch_size, epochs)
        return TrainingJob(self.taken, list(chosen), self.labels.first(size), np.arange(self._tried, size))

    def _collect(self) -> bool:
        """Pays by the trained parameters from now on; False where no gradient steps have ended."""
        outcome = self._trainer.take()
        if outcome is None:
            return False
        job, amount = outcome.job, len(outcome.job.draws)
        self.schedule.taken(amount)
        self._tried = len(job.examples.labels)
        self._busy += outcome.seconds
        self._right, self._counted = self._right + outcome.right, self._counted + outcome.counted
        self._last = outcome.means
        self.taken = job.first + amount
        self.table.swap(self._params(), self.taken)
        return True

    def _params(self) -> Any:
        return jax.device_put(self._trainer.state.params, self._device)

    def own_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        state = self._trainer.state
        leaves = enumerate(jax.tree.leaves(state.opt_state))
        optimizer = {f"{place:03d}": np.asarray(leaf) for place, leaf in leaves}
        arrays = {"params": jax.tree.map(np.asarray, state.params), "optimizer": optimizer}
        counts = {name: getattr(self.schedule, name) for name in _COUNTS}
        return arrays, {"taken": self.taken, "tried": self._tried, **counts}

    def restore_own(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        state = self._trainer.state
        leaves = [arrays["optimizer"][name] for name in sorted(arrays["optimizer"])]
        opt_state = jax.tree.unflatten(jax.tree.structure(state.opt_state), leaves)
        self._trainer.state = jax.tree.map(_like, state, EnsembleState(arrays["params"], opt_state))
        self.taken, self._tried = data["taken"], data["tried"]
        for name in _COUNTS:
            setattr(self.schedule, name, data[name])
        self.table.swap(self._params(), self.taken)

    def metrics(self) -> dict[str, float]:
        seconds, row = self.learning.seconds(), super().metrics()
        row |= {
            "reward/training_steps": float(self.taken),
            "reward/training_steps_owed": float(self.schedule.owed),
            "reward/training_steps_dropped": float(self.schedule.dropped),
            "reward/training_share": self._busy / seconds,
            **{f"reward/{name}": value for name, value in self._last.items()},
            "reward/accuracy_before_training": self._right / self._counted if self._counted else 0.0,
        }
        self._right = self._counted = 0
        self._busy = 0.0
        return row


def _like(old: Any, new: Any) -> Any:
    if np.shape(old) != np.shape(new):
        raise ValueError(f"a reward's parameters of shape {np.shape(new)} in place of {np.shape(old)}")
    (device,) = old.devices()
    return jax.device_put(np.asarray(new, old.dtype), device)


def _training_device(place: str, beside: jax.Device | None) -> jax.Device | None:
    if place == "auto":
        return beside
    devices = jax.local_devices()
    allowed = f"'auto' or a number below {len(devices)}, the devices here"
    checks.require(int(place) < len(devices), "reward.training.device", place, allowed)
    return devices[int(place)]
