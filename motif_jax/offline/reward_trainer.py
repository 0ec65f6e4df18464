"""Trains a reward model from preferences on the local devices."""

from __future__ import annotations

import math
import time
from collections import deque
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.algorithms import preference, schedules
from motif_jax.algorithms.preference import PreferenceState
from motif_jax.devices.parallel import AXIS, DataParallel
from motif_jax.networks.reward import RewardNetwork
from motif_jax.offline import reward_data, reward_evaluation
from motif_jax.offline.reward_data import BatchPlan, RewardData
from motif_jax.offline.reward_files import Position, RewardFiles
from motif_jax.rewards.trained import architecture_of, member_rewards
from motif_jax.support import seeds
from motif_jax.support.errors import UserError
from motif_jax.support.interruption import Interruption
from motif_jax.support.metrics import MetricsWriter
from motif_jax.support.profiling import Profiler
from motif_jax.support.progress import Progress

_MESSAGE_BLOCK = 512


class RewardTrainer:
    """The programs and the state of one reward training; `run` goes through its epochs.

    A training step names its pairs by index; the distinct messages lie on every device. Steps run in chunks
    of `config.chunk_steps` under one program (on CPU a call each), and the numbers of a chunk are read while
    the next one runs.
    """

    def __init__(self, config: ConfigDict, data: RewardData, parallel: DataParallel) -> None:
        self.config, self.data, self.parallel = config, data, parallel
        self.network = RewardNetwork(architecture_of(config.network, config.compat))
        self.members = config.ensemble.members
        self.plan = BatchPlan(data, config, parallel.device_count)
        total_steps = max(1, self.plan.steps_per_epoch * config.epochs)
        if config.epochs:
            schedules.check_warmup(config, total_steps)
        self.optimizer = schedules.make_optimizer(config.optimizer, total_steps)
        self._schedule = schedules.make_schedule(config.optimizer, total_steps)
        steps = preference.make_train_steps(self.network, self.optimizer, self.members, data.max_length, AXIS)
        # XLA runs convolutions inside a loop on CPU about ten times slower than outside: there every step is a
        # call of its own, which nothing waits for either.
        self._steps_per_call = 1 if parallel.platform == "cpu" else None
        self._train = parallel.wrap(steps, donate_state=True)
        self._rewards_of_messages = parallel.wrap(self._messages_core)
        self._rewards_of_steps = parallel.wrap(self._steps_core)

    def _messages_core(self, params: Any, messages: jax.Array) -> jax.Array:
        rewards = member_rewards(
            self.network, self.members, params, {"message": messages}, self.data.max_length
        )
        return jax.lax.all_gather(rewards, AXIS, axis=1, tiled=True)

    def _steps_core(self, state: tuple[Any, jax.Array], batch: preference.PreferenceBatch) -> jax.Array:
        params, messages = state
        if self.members == 1:
            params = jax.tree.map(lambda leaf: leaf[None], params)
        one = jax.vmap(preference.step_rewards, in_axes=(None, 0, None, None, None))
        first = jax.tree.map(lambda leaf: leaf[0], batch)
        rewards = one(self.network, params, messages, first, self.data.max_length)
        return jax.lax.all_gather(rewards, AXIS, axis=1, tiled=True)

    def init_state(self) -> PreferenceState:
        """A fresh state, replicated; depends on the seed alone."""
        key = jax.random.key(seeds.derive(self.config.seed, "parameters") % 2**32)
        make = jax.jit(
            lambda key: preference.init_state(self.network, self.optimizer, key, None, self.members)
        )
        return self.place(jax.device_get(make(key)))

    def place(self, state: PreferenceState) -> PreferenceState:
        """Puts a host state on every device, with the table of messages."""
        return self.parallel.replicate(state._replace(messages=self.data.messages))

    def train_chunk(
        self, state: PreferenceState, batches: preference.PreferenceBatch
    ) -> tuple[PreferenceState, list[dict[str, jax.Array]]]:
        """Starts the steps of a chunk; returns (new state, metrics [steps] of its parts), still being computed."""
        steps, numbers = len(batches.unique), []
        for start in range(0, steps, self._steps_per_call or steps):
            part = slice(start, start + (self._steps_per_call or steps))
            called = jax.tree.map(lambda leaf: leaf[part], batches)  # noqa: B023
            state, metrics = self._train(state, self.parallel.put_batch(called, reward_data.axes(called)))
            numbers.append(metrics)
        return state, numbers

    def member_rewards(self, state: PreferenceState) -> np.ndarray:
        """Raw rewards of the data set.

        Returns:
          float32 [members, M] of the distinct messages if the model reads nothing else, else
          [members, pairs, 2, L] of every step (NaN for pairs without a known label).
        """
        if self.network.architecture.message_only:
            block, table = _MESSAGE_BLOCK * self.parallel.device_count, self.data.messages
            blocks = []
            for start in range(0, len(table), block):
                part = np.zeros((block, table.shape[1]), np.uint8)
                part[: len(table) - start] = table[start : start + block]
                blocks.append(self._rewards_of_messages(state.params, self.parallel.put_batch(part, 0)))
            return np.concatenate([np.asarray(part) for part in blocks], axis=1)[:, : len(table)]
        return self._member_rewards_of_steps(state)

    def _member_rewards_of_steps(self, state: PreferenceState) -> np.ndarray:
        data, size = self.data, self.plan.batch_size
        known = np.concatenate([data.train, data.validation])
        shape = (self.members, data.dataset.num_pairs, 2, data.dataset.length)
        rewards = np.full(shape, np.nan, np.float32)
        weights = np.ones((1, self.members, size), np.float32)
        bucket = min(2 * data.dataset.length * size // self.parallel.device_count, len(data.messages))
        for start in range(0, known.size, size):
            pairs = np.full((1, size), -1, np.int64)
            chosen = known[start : start + size]
            pairs[0, : chosen.size] = chosen
            batch = self.plan.make(pairs, weights, bucket)
            placed = self.parallel.put_batch(batch, reward_data.axes(batch))
            values = self._rewards_of_steps((state.params, state.messages), placed)
            rewards[:, chosen] = np.asarray(values)[:, : chosen.size]
        return rewards

    def evaluate(self, state: PreferenceState) -> tuple[dict[str, Any], dict[str, Any]]:
        """Measures the model: (statistics as a checkpoint holds them, losses and accuracies).

        Raises:
          UserError: a reward is not finite.
        """
        config, data = self.config, self.data
        rewards = self.member_rewards(state)
        message_only = self.network.architecture.message_only
        known = rewards if message_only else rewards[:, np.concatenate([data.train, data.validation])]
        if not np.isfinite(known).all():
            raise self._diverged("a reward", int(state.step))
        statistics = reward_evaluation.reward_statistics(
            rewards, data, message_only, config.compat.running_statistics, config.batch_size
        )
        together = rewards.mean(axis=0)
        steps = together[data.ids] if message_only else together
        pairs = reward_evaluation.evaluate_pairs(steps.mean(axis=-1), data, config.batch_size)
        return statistics, pairs

    def run(self, workdir: Path) -> bool:
        """Trains to the end, from wherever the run folder stands.

        Returns:
          True when done; False if it was asked to stop: everything is saved, and the same call continues.
        """
        with RewardFiles(workdir, self.config, self.data) as records, Interruption() as stop:
            state, position = self._start(records)
            profile = self.config.profile
            profiler = Profiler(workdir, profile.start, profile.steps, profile.server_port)
            total, done = self.config.epochs * self.data.train.size, self._pairs_done(position)
            resumed = position.step if position.rows else None
            with (
                MetricsWriter(workdir, resumed, _wandb(self.config)) as metrics,
                Progress(total, "pairs", "train reward", done) as progress,
            ):
                try:
                    return self._epochs(state, position, records, metrics, progress, profiler, stop)
                finally:
                    profiler.close()

    def _start(self, records: RewardFiles) -> tuple[PreferenceState, Position]:
        state = self.init_state()
        found = records.restore(jax.tree.map(_abstract, state._replace(messages=None)))
        return (self.place(found[0]), found[1]) if found else (state, Position())

    def _pairs_done(self, position: Position) -> int:
        inside = min(position.step_in_epoch * self.plan.batch_size, self.data.train.size)
        return position.epoch * self.data.train.size + inside

    def _epochs(
        self,
        state: PreferenceState,
        position: Position,
        records: RewardFiles,
        metrics: MetricsWriter,
        progress: Progress,
        profiler: Profiler,
        stop: Interruption,
    ) -> bool:
        if not position.rows:
            self._evaluate_and_save(state, position, records, metrics, progress)
        while position.epoch < self.config.epochs and not records.finished(position):
            finished = self._one_epoch(state, position, records, progress, profiler, stop)
            if finished is None:
                return False
            state = finished
            self._evaluate_and_save(state, position, records, metrics, progress)
            if stop.requested and position.epoch < self.config.epochs:
                return False
        records.write_summary(position)
        return True

    def _one_epoch(
        self,
        state: PreferenceState,
        position: Position,
        records: RewardFiles,
        progress: Progress,
        profiler: Profiler,
        stop: Interruption,
    ) -> PreferenceState | None:
        """Trains to the end of the epoch at `position`; None if it was asked to stop and has saved."""
        waiting: deque[Any] = deque()
        for steps, batches in self.plan.chunks(position.epoch, position.step_in_epoch):
            profiler.step(position.step // self.plan.chunk_steps)
            state, numbers = self.train_chunk(state, batches)
            waiting.append(numbers)
            if len(waiting) > 1:
                self._count(position, waiting.popleft())
                progress.update(self._pairs_done(position), **position.shown())
            position.step += steps
            position.step_in_epoch += steps
            # At the end of an epoch its evaluation is saved instead.
            inside = position.step_in_epoch < self.plan.steps_per_epoch
            if inside and (stop.requested or records.save_is_due()):
                while waiting:
                    self._count(position, waiting.popleft())
                records.save_position(state._replace(messages=None), position)
                if stop.requested:
                    return None
        while waiting:
            self._count(position, waiting.popleft())
        progress.update(self._pairs_done(position), **position.shown())
        position.epoch, position.step_in_epoch = position.epoch + 1, 0
        return state

    def _count(self, position: Position, numbers: list[dict[str, jax.Array]]) -> None:
        for metrics in jax.device_get(numbers):
            position.add(metrics)
        if not math.isfinite(position.sums["loss"]):
            raise self._diverged("the loss", position.step)

    def _diverged(self, what: str, step: int) -> UserError:
        rate = self.config.optimizer.learning_rate
        return UserError(
            f"the training diverged: {what} is not finite around optimiser step {step}; start it in another --workdir with "
            f"a smaller --config.optimizer.learning_rate (it is {rate:g}) or with --config.optimizer.max_gradient_norm=1; "
            "evaluations made before stay as they are"
        )

    def _evaluate_and_save(
        self,
        state: PreferenceState,
        position: Position,
        records: RewardFiles,
        metrics: MetricsWriter,
        progress: Progress,
    ) -> None:
        start = time.monotonic()
        statistics, pairs = self.evaluate(state)
        rate = float(self._schedule(position.step - 1)) if position.step else math.nan
        pairs["optimizer/learning_rate"] = rate
        row = position.close_epoch(statistics, pairs)
        values = {name: value for name, value in row.items() if "/" in name}
        metrics.write(position.step, values | {"evaluation/seconds": time.monotonic() - start})
        # After the metrics: what is in a checkpoint has been written, what is not is written again.
        records.save_evaluation(state._replace(messages=None), position, statistics)
        unseen = row["validation_unseen/accuracy_pairs"]
        progress.log(
            f"epoch {position.epoch}: validation loss {row['validation/loss']:.4f}, accuracy without ties "
            f"{100 * row['validation/accuracy']:.1f} % of {row['validation/accuracy_pairs']:,} pairs"
            + (
                f" ({100 * row['validation_unseen/accuracy']:.1f} % of {unseen:,} with new messages)"
                if unseen
                else ""
            )
        )


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _wandb(config: ConfigDict) -> dict[str, Any] | None:
    if not config.wandb.enabled:
        return None
    return {"project": config.wandb.project, "name": config.wandb.name}
