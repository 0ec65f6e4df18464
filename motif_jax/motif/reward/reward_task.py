"""Training of the reward model, as a task of the offline trainer: preferences, statistics, and files in the published format."""

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
from motif_jax.motif.reward import preference, reward_data, reward_evaluation
from motif_jax.motif.reward.config import RewardConfig
from motif_jax.motif.reward.normalisation import QUANTILE_LEVELS
from motif_jax.motif.reward.preference import PreferenceBatch
from motif_jax.motif.reward.reward_data import BatchPlan, RewardData
from motif_jax.motif.reward.reward_model import architecture_of, of_members
from motif_jax.nets.reward import RewardNetwork

TRAIN_CSV, VALIDATION_CSV = "train_metrics.csv", "val_metrics.csv"
QUANTILES_CSV = "reward_metrics/train_norm_quantiles.csv"
_MESSAGE_BLOCK = 512


class RewardTask(Task):
    """A reward training. Batches hold indices of messages; every device holds the distinct messages."""

    title, unit, criterion = "train reward", "pairs", "validation/loss"

    def __init__(self, config: RewardConfig, data: RewardData, parallel: DataParallel) -> None:
        self.config, self.data, self.parallel = config, data, parallel
        self.network = RewardNetwork(architecture_of(config))
        self.members = config.ensemble.members
        self.plan = BatchPlan(data, config, parallel.device_count)
        self.chunk_steps, self.steps_per_epoch = self.plan.chunk_steps, self.plan.steps_per_epoch
        self.steps = self.steps_per_epoch * config.epochs
        if config.epochs:
            schedules.check_warmup(config.optimizer, self.steps)
        self.optimizer = schedules.make_optimizer(config.optimizer, max(1, self.steps))
        self._schedule = schedules.make_schedule(config.optimizer, max(1, self.steps))
        self._step = preference.make_train_step(
            self.network, self.optimizer, self.members, data.max_length, AXIS
        )
        self.rewards_of_messages = parallel.wrap(self._messages_core)
        self.rewards_of_steps = parallel.wrap(self._steps_core)
        self.digests, self.source = data.digests, f"{config.dataset_dir} ({config.annotator})"
        self.remedy = smaller_steps(config.optimizer)

    def _messages_core(self, params: Any, messages: jax.Array) -> jax.Array:
        given = (self.members, params, {"message": messages}, self.data.max_length)
        return jax.lax.all_gather(of_members(self.network.reward, *given), AXIS, axis=1, tiled=True)

    def _steps_core(self, state: tuple[Any, jax.Array], batch: preference.PreferenceBatch) -> jax.Array:
        params, messages = state
        if self.members == 1:
            params = jax.tree.map(lambda leaf: leaf[None], params)
        one = jax.vmap(preference.step_rewards, in_axes=(None, 0, None, None, None))
        first = jax.tree.map(lambda leaf: leaf[0], batch)
        rewards = one(self.network, params, messages, first, self.data.max_length)
        return jax.lax.all_gather(rewards, AXIS, axis=1, tiled=True)

    def init_state(self) -> EnsembleState:
        make = jax.jit(lambda key: ensembles.init_state(self.network, self.optimizer, key, self.members))
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
        number, inside = divmod(step, self.plan.steps_per_pass)
        train = self.data.train.size
        return number * train + min(inside * self.plan.batch_size, train)

    def tally(self, metrics: Mapping[str, np.ndarray]) -> dict[str, Any]:
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
        """Raw rewards of the dataset: float32 [members, M] of the distinct messages if the model reads nothing else.

        Else [members, pairs, 2, L] of every step, NaN for pairs without a known label.
        """
        if self.network.architecture.message_only:
            block, table = _MESSAGE_BLOCK * self.parallel.device_count, self.data.messages
            blocks = []
            for start in range(0, len(table), block):
                part = np.zeros((block, table.shape[1]), np.uint8)
                part[: len(table) - start] = table[start : start + block]
                blocks.append(self.rewards_of_messages(state.params, self.parallel.put_batch(part, 0)))
            return np.concatenate([np.asarray(part) for part in blocks], axis=1)[:, : len(table)]
        return self._member_rewards_of_steps(state, messages)

    def _member_rewards_of_steps(self, state: EnsembleState, messages: jax.Array) -> np.ndarray:
        data, size = self.data, self.plan.batch_size
        known = np.concatenate([data.train, data.validation])
        shape = (self.members, data.dataset.num_pairs, 2, data.dataset.length)
        rewards = np.full(shape, np.nan, np.float32)
        weights = np.ones((1, self.members, size), np.float32)
        bucket = min(2 * data.dataset.length * size // self.parallel.device_count, len(data.messages))
        for start in range(0, known.size, size):
            chosen = known[start : start + size]
            pairs = np.pad(chosen, (0, size - chosen.size), constant_values=-1)
            batch = self.plan.make(pairs[None], weights, bucket)
            placed = self.parallel.put_batch(batch, reward_data.axes(batch))
            values = self.rewards_of_steps((state.params, messages), placed)
            rewards[:, chosen] = np.asarray(values)[:, : chosen.size]
        return rewards

    def evaluate(self, state: EnsembleState, shared: jax.Array, position: TrainingPosition) -> Evaluation:
        statistics, row = self.measure(state, shared, position.step)
        row["optimizer/learning_rate"] = position.learning_rate(self._schedule)
        sums = position.sums
        row |= {f"train/{name}": number for name, number in self.shown(sums).items()}
        row["train/gradient_norm"] = ratio(sums, "gradient_norm", "batches")
        for name in ("loss_pairs", "accuracy_pairs"):
            row[f"train/{name}"] = int(sums.get(name, 0))
        for name in ("mean", "variance", "disagreement"):
            row[f"reward/{name}"] = statistics[name]
        for name in ("pairs", "steps", "distinct"):
            row[f"reward/{name}"] = statistics[f"num_{name}"]
        for level, value in zip(statistics["quantile_levels"], statistics["quantiles"], strict=True):
            row[_quantile(level)] = value
        text = (
            f"epoch {len(position.rows)}: validation loss {row['validation/loss']:.4f}, accuracy without ties "
            f"{100 * row['validation/accuracy']:.1f} % of {row['validation/accuracy_pairs']:,} pairs"
        )
        if unseen := row["validation_unseen/accuracy_pairs"]:
            text += f" ({100 * row['validation_unseen/accuracy']:.1f} % of {unseen:,} with new messages)"
        return Evaluation(row, {"statistics": statistics}, text)

    def measure(
        self, state: EnsembleState, messages: jax.Array, step: int = 0
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Statistics of the rewards, and losses and accuracies of the pairs. UserError: a reward is not finite."""
        config, data = self.config, self.data
        rewards = self.member_rewards(state, messages)
        message_only = self.network.architecture.message_only
        known = rewards if message_only else rewards[:, np.concatenate([data.train, data.validation])]
        if not np.isfinite(known).all():
            raise diverged(f"a reward after step {step:,} not finite", self.remedy)
        statistics = reward_evaluation.reward_statistics(
            rewards, data, message_only, config.compat.running_statistics, config.batch_size
        )
        together = rewards.mean(axis=0)
        steps = together[data.ids] if message_only else together
        return statistics, reward_evaluation.evaluate_pairs(steps.mean(axis=-1), data, config.batch_size)

    def write(self, workdir: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        def lines(*names: str) -> list[str]:
            cells = [
                ["" if math.isnan(row[name]) else repr(float(row[name])) for name in names] for row in rows
            ]
            return [",".join([str(row["epoch"]), *of]) for row, of in zip(rows, cells, strict=True)]

        train = ["epoch,total_train_loss,total_train_acc", *lines("train/loss", "train/accuracy")[1:]]
        validation = ["iter,total_val_loss,score_validation_accs,validation_accs"]
        validation += lines("csv_validation_loss", "csv_score_accuracy", "csv_validation_accuracy")
        quantiles = [",".join(f"{level:.2f}" for level in QUANTILE_LEVELS)]
        rounded = self.config.compat.quantile_two_decimals
        for row in rows:
            values = [row[_quantile(level)] for level in QUANTILE_LEVELS]
            quantiles.append(",".join(f"{v:.2f}" if rounded else repr(v) for v in values))
        for name, table in ((TRAIN_CSV, train), (VALIDATION_CSV, validation), (QUANTILES_CSV, quantiles)):
            atomic_write_text(workdir / name, "\n".join(table) + "\n")


def _quantile(level: float) -> str:
    return f"reward/quantile_{round(100 * level):02d}"
