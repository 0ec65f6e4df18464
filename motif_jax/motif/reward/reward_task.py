"""Training of the reward model, as a task of the offline trainer: preferences, statistics, and
files in the published format.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.core.devices.parallel import AXIS, DataParallel
from motif_jax.core.files import atomic_write_text
from motif_jax.core.training import ensembles, schedules
from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.core.training.task import (
    Evaluation,
    Task,
    TrainingPosition,
    diverged,
    key_of,
    ratio,
    smaller_steps,
)
from motif_jax.motif.reward import preference, reward_data, reward_evaluation, training_texts
from motif_jax.motif.reward.config import RewardConfig
from motif_jax.motif.reward.normalisation import QUANTILE_LEVELS
from motif_jax.motif.reward.preference import PreferenceBatch
from motif_jax.motif.reward.reward_data import BatchPlan, RewardData
from motif_jax.motif.reward.reward_model import architecture_of, of_members
from motif_jax.nets.reward import RewardNetwork

# Files in the published format, in the work folder.
TRAIN_CSV = "train_metrics.csv"
VALIDATION_CSV = "val_metrics.csv"
QUANTILES_CSV = "reward_metrics/train_norm_quantiles.csv"
# Messages that a device rates in one call.
_MESSAGE_BLOCK = 512


class RewardTask(Task):
    """A reward training. Batches hold indices of messages; every device holds the distinct
    messages.
    """

    title = "train reward"
    unit = "pairs"

    def __init__(self, config: RewardConfig, data: RewardData, parallel: DataParallel) -> None:
        self.config = config
        self.data = data
        self.parallel = parallel
        self.network = RewardNetwork(architecture_of(config))
        self.members = config.ensemble.members

        # First, since the schedules depend on the number of steps.
        self.plan = BatchPlan(data, config, parallel.device_count)
        self.chunk_steps = self.plan.chunk_steps
        self.steps_per_epoch = self.plan.steps_per_epoch
        self.steps = self.steps_per_epoch * config.epochs
        # A run without epochs writes the evaluation of its fresh network; it has no steps to warm
        # up in.
        if config.epochs:
            schedules.check_warmup(config.optimizer, self.steps)
        self.optimizer = schedules.make_optimizer(config.optimizer, max(1, self.steps))
        self._schedule = schedules.make_schedule(config.optimizer, max(1, self.steps))
        self._step = preference.make_train_step(
            self.network, self.optimizer, self.members, data.max_length, AXIS
        )
        # Programs of all devices for evaluations; each device has its part, and the parts are
        # gathered.
        self.rewards_of_messages = parallel.wrap(self._messages_core)
        self.rewards_of_steps = parallel.wrap(self._steps_core)
        self.digests = data.digests
        self.source = f"{config.dataset_dir} ({config.annotator})"
        self.remedy = smaller_steps(config.optimizer)

    def _messages_core(self, params: Any, messages: jax.Array) -> jax.Array:
        """Rewards float32 [members, devices * N] of every device's messages uint8 [N, 256]."""
        inputs = {"message": messages}
        rewards = of_members(
            self.network.reward, self.members, params, inputs, self.data.max_length
        )
        return jax.lax.all_gather(rewards, AXIS, axis=1, tiled=True)

    def _steps_core(
        self, state: tuple[Any, jax.Array], batch: preference.PreferenceBatch
    ) -> jax.Array:
        """Rewards float32 [members, B, 2, L] of the steps of every device's part of a batch."""
        params, messages = state
        if self.members == 1:
            # A single model has no axis of members.
            params = jax.tree.map(lambda leaf: leaf[None], params)
        member_rewards = jax.vmap(preference.step_rewards, in_axes=(None, 0, None, None, None))
        # The batch has a leading axis of one step.
        batch = jax.tree.map(lambda leaf: leaf[0], batch)
        rewards = member_rewards(self.network, params, messages, batch, self.data.max_length)
        return jax.lax.all_gather(rewards, AXIS, axis=1, tiled=True)

    def init_state(self) -> EnsembleState:
        make = jax.jit(
            lambda key: ensembles.init_state(self.network, self.optimizer, key, self.members)
        )
        return jax.device_get(make(key_of(self.config.seed, "parameters")))

    def shared(self) -> np.ndarray:
        return self.data.messages

    def step(
        self, state: EnsembleState, shared: jax.Array, batch: PreferenceBatch
    ) -> tuple[EnsembleState, dict[str, jax.Array]]:
        return self._step(state, shared, batch)

    def batches(self, first: int, count: int) -> PreferenceBatch:
        return self.plan.batches(first, count)

    def batch_axes(self, batches: PreferenceBatch) -> Any:
        return reward_data.axes(batches)

    def inspected(self, batch: PreferenceBatch) -> dict[str, Any]:
        return {**super().inspected(batch), "messages": self.data.messages[batch.unique]}

    def units(self, step: int) -> int:
        passes, steps_of_pass = divmod(step, self.plan.steps_per_pass)
        num_pairs = self.data.train.size
        # The last batch of a pass may not be full.
        return passes * num_pairs + min(steps_of_pass * self.plan.batch_size, num_pairs)

    def tally(self, metrics: Mapping[str, np.ndarray]) -> dict[str, Any]:
        # A batch of ties has no accuracy.
        counted = metrics["counted"] > 0
        return {
            "batches": counted.size,
            "loss": np.sum(metrics["loss"], dtype=np.float64),
            "accuracy_batches": counted.sum(),
            "accuracy": np.sum(metrics["accuracy"].astype(np.float64)[counted]),
            "gradient_norm": np.sum(metrics["gradient_norm"], dtype=np.float64),
            "loss_pairs": np.sum(metrics["pairs"]),
            "accuracy_pairs": np.sum(metrics["counted"]),
        }

    def shown(self, sums: Mapping[str, float]) -> dict[str, float]:
        accuracy = ratio(sums, "accuracy", "accuracy_batches")
        return {"loss": ratio(sums, "loss", "batches"), "accuracy": accuracy}

    def member_rewards(self, state: EnsembleState, messages: jax.Array) -> np.ndarray:
        """Raw rewards of the dataset: float32 [members, M] of the distinct messages if the model
        reads nothing else.

        Else [members, pairs, 2, L] of every step, NaN for pairs without a known label.
        """
        if self.network.architecture.message_only:
            return self._member_rewards_of_messages(state)
        return self._member_rewards_of_steps(state, messages)

    def _member_rewards_of_messages(self, state: EnsembleState) -> np.ndarray:
        table = self.data.messages
        size = _MESSAGE_BLOCK * self.parallel.device_count
        rewards = []
        for start in range(0, len(table), size):
            # Padded to one size, so that the program is compiled once.
            block = np.zeros((size, table.shape[1]), np.uint8)
            block[: len(table) - start] = table[start : start + size]
            rewards.append(
                self.rewards_of_messages(state.params, self.parallel.put_batch(block, 0))
            )
        # All blocks are launched before the first result is read.
        return np.concatenate([np.asarray(values) for values in rewards], axis=1)[:, : len(table)]

    def _member_rewards_of_steps(self, state: EnsembleState, messages: jax.Array) -> np.ndarray:
        data = self.data
        size = self.plan.batch_size
        labelled = np.concatenate([data.train, data.validation])
        shape = (self.members, data.dataset.num_pairs, 2, data.dataset.length)
        rewards = np.full(shape, np.nan, np.float32)
        weights = np.ones((1, self.members, size), np.float32)
        # Validation pairs may have more distinct messages in a batch than training pairs: the most
        # that are possible.
        bucket = min(
            2 * data.dataset.length * size // self.parallel.device_count, len(data.messages)
        )
        for start in range(0, labelled.size, size):
            pairs = labelled[start : start + size]
            padded = np.pad(pairs, (0, size - pairs.size), constant_values=-1)
            batch = self.plan.make(padded[None], weights, bucket)
            device_batch = self.parallel.put_batch(batch, reward_data.axes(batch))
            values = self.rewards_of_steps((state.params, messages), device_batch)
            rewards[:, pairs] = np.asarray(values)[:, : pairs.size]
        return rewards

    def evaluate(
        self, state: EnsembleState, shared: jax.Array, position: TrainingPosition
    ) -> Evaluation:
        statistics, row = self.measure(state, shared, position.step)
        row["optimizer/learning_rate"] = position.learning_rate(self._schedule)
        # Of the steps since the last evaluation, as they were before each update.
        sums = position.sums
        row |= {f"train/{name}": number for name, number in self.shown(sums).items()}
        row["train/gradient_norm"] = ratio(sums, "gradient_norm", "batches")
        for name in ("loss_pairs", "accuracy_pairs"):
            row[f"train/{name}"] = int(sums.get(name, 0))
        for name in ("mean", "variance", "disagreement"):
            row[f"reward/{name}"] = statistics[name]
        for name in ("pairs", "steps", "distinct"):
            row[f"reward/{name}"] = statistics[f"num_{name}"]
        for level, value in zip(
            statistics["quantile_levels"], statistics["quantiles"], strict=True
        ):
            row[_quantile(level)] = value
        text = (
            f"epoch {len(position.rows)}: validation loss {row['validation/loss']:.4f}, accuracy without ties "
            f"{100 * row['validation/accuracy']:.1f} % of {row['validation/accuracy_pairs']:,} pairs"
        )
        num_unseen = row["validation_unseen/accuracy_pairs"]
        if num_unseen:
            text += f" ({100 * row['validation_unseen/accuracy']:.1f} % of {num_unseen:,} with new messages)"
        return Evaluation(row, {"statistics": statistics}, text)

    def measure(
        self, state: EnsembleState, messages: jax.Array, step: int = 0
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Statistics of the rewards, and losses and accuracies of the pairs. UserError: a reward is
        not finite.
        """
        config = self.config
        data = self.data
        rewards = self.member_rewards(state, messages)
        message_only = self.network.architecture.message_only
        # Pairs without a label are NaN in a model that reads more.
        computed = (
            rewards if message_only else rewards[:, np.concatenate([data.train, data.validation])]
        )
        if not np.isfinite(computed).all():
            raise diverged(f"a reward after step {step:,} not finite", self.remedy)

        # Of the training part, by the same rewards of the whole dataset as the pairs below.
        statistics = reward_evaluation.reward_statistics(
            rewards, data, message_only, config.compat.running_statistics, config.batch_size
        )
        # To [pairs, 2], the mean over the steps of each sub-sequence as in the loss.
        ensemble_rewards = rewards.mean(axis=0)
        step_rewards = ensemble_rewards[data.ids] if message_only else ensemble_rewards
        pair_rewards = step_rewards.mean(axis=-1)
        return statistics, reward_evaluation.evaluate_pairs(pair_rewards, data, config.batch_size)

    def write(self, workdir: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        # The first row is that of the fresh network, which has no training loss.
        train = ["epoch,total_train_loss,total_train_acc"]
        train += _csv_lines(rows[1:], "train/loss", "train/accuracy")
        validation = ["iter,total_val_loss,score_validation_accs,validation_accs"]
        validation += _csv_lines(
            rows, "csv_validation_loss", "csv_score_accuracy", "csv_validation_accuracy"
        )

        quantiles = [",".join(f"{level:.2f}" for level in QUANTILE_LEVELS)]
        rounded = self.config.compat.quantile_two_decimals
        for row in rows:
            values = [row[_quantile(level)] for level in QUANTILE_LEVELS]
            quantiles.append(
                ",".join(f"{value:.2f}" if rounded else repr(value) for value in values)
            )

        # For `known` of the reward: hashes of the texts that it learns from.
        if self.network.architecture.message_only and not (workdir / training_texts.FILE).exists():
            texts = self.data.messages[self.data.counts > 0]
            training_texts.write_training_texts(workdir, texts)
        for name, table in (
            (TRAIN_CSV, train),
            (VALIDATION_CSV, validation),
            (QUANTILES_CSV, quantiles),
        ):
            atomic_write_text(workdir / name, "\n".join(table) + "\n")


def _csv_lines(rows: Sequence[Mapping[str, Any]], *names: str) -> list[str]:
    """A line for each row: its epoch, and the values of `names`, empty for NaN."""
    lines = []
    for row in rows:
        cells = [str(row["epoch"])]
        for name in names:
            cells.append("" if math.isnan(row[name]) else repr(float(row[name])))
        lines.append(",".join(cells))
    return lines


def _quantile(level: float) -> str:
    """The metric of a quantile: reward/quantile_05, ..."""
    return f"reward/quantile_{round(100 * level):02d}"
