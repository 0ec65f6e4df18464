"""Trainings by the gradient of a loss, and those whose loss is a sum over a batch divided by a count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.algorithms import schedules
from motif_jax.devices.parallel import AXIS, DataParallel
from motif_jax.language import dropout, training
from motif_jax.language.training import LanguageTrainState, SumsOf, TokenSums
from motif_jax.support import seeds
from motif_jax.support.run_folder import as_plain
from motif_jax.trainers.task import (
    Evaluation,
    Task,
    TrainingPosition,
    diverged,
    drawn_by,
    shapes_of,
    smaller_steps,
)


class StepBatches(Protocol):
    """Batches of steps, leaves [count, batch_size, ...], and all of a held-out part in at most `most` batches [batch_size, ...]."""

    def batches(self, first: int, count: int) -> Any: ...

    def whole(self, most: int) -> Sequence[Any]: ...


class GradientTask(Task):
    """A task with an optimiser, frozen parameters, and batches that are split into micro-batches.

    Args:
      parameters: those that are learned and those that are frozen, numpy arrays.
      train: batches to learn from; None where `batches` is overridden.
      drawn: whether devices draw numbers of their own.
      optimizer: its config and the number of its steps; None: `config.optimizer`, a step each.
    """

    criterion = "validation/loss"

    def __init__(
        self,
        config: ConfigDict,
        parameters: tuple[Any, Any],
        train: StepBatches | None,
        parallel: DataParallel,
        digests: Mapping[str, str],
        drawn: bool,
        optimizer: tuple[ConfigDict, int] | None = None,
    ) -> None:
        self.config, self.parallel, self._train = config, parallel, train
        self._start, self._frozen = parameters
        self.learned = shapes_of(self._start)
        self.steps_per_epoch, self.chunk_steps = config.evaluate_every, config.chunk_steps
        self.digests = {**digests, **drawn_by(len(parallel.devices), drawn)}
        self.remedy = smaller_steps(config)
        settings, updates = optimizer or (config.optimizer, config.get("max_steps") or config.steps)
        self.steps = updates
        # Matrices decay, norms and biases do not; of additions both matrices do.
        decays = schedules.matrices if "weight_decay" in settings else None
        self.optimizer = schedules.make_optimizer(settings, updates, decays)
        self.schedule = schedules.make_schedule(settings, updates)
        self._key = dropout.key(seeds.derive(config.seed, "dropout") % 2**32)

    def start(self) -> tuple[Any, Any, Any]:
        """The learned parameters, which are let go of here, the optimiser's state, and the number of steps, 0."""
        learned, self._start = self._start, None
        return learned, jax.device_get(jax.jit(self.optimizer.init)(learned)), np.int32(0)

    def dropout_key(self, step: jax.Array) -> jax.Array:
        return jax.random.fold_in(jax.random.fold_in(self._key, step), jax.lax.axis_index(AXIS))

    def shared(self) -> Any:
        return self._frozen or None

    def batches(self, first: int, count: int) -> Any:
        assert self._train is not None
        parts, whole = self.config.accumulate, self._train.batches(first, count)
        return jax.tree.map(lambda leaf: leaf.reshape(count, parts, -1, *leaf.shape[2:]), whole)

    def batch_axes(self, batches: Any) -> int:
        return 2

    def units(self, step: int) -> int:
        return step * self.config.batch_size

    def evaluation(self, row: dict[str, Any], text: str, position: TrainingPosition) -> Evaluation:
        """An evaluation with what all trainings measure, and the config."""
        row = {
            **row,
            "train/gradient_norm": position.mean("gradient_norm"),
            "optimizer/learning_rate": position.learning_rate(self.schedule),
        }
        return Evaluation(row, {"config": as_plain(self.config)}, f"step {position.step:,}: {text}")


class HeldOutMeans(NamedTuple):
    """Mean loss in nats and accuracy of the held-out part, and how many the accuracy is a mean of."""

    loss: float
    accuracy: float
    counted: float


class SumsTask(GradientTask):
    """One training; inherit from it for what is evaluated.

    Args:
      sums: the loss, see `training.SumsOf`.
      parameters, parallel, digests, optimizer: of `GradientTask`.
      data: batches to learn from, and batches to measure with.
    """

    def __init__(
        self,
        config: ConfigDict,
        sums: SumsOf,
        parameters: tuple[Any, Any],
        data: tuple[StepBatches, StepBatches],
        parallel: DataParallel,
        digests: Mapping[str, str],
        optimizer: tuple[ConfigDict, int] | None = None,
    ) -> None:
        drawn = config.get("dropout", 0.0) > 0
        super().__init__(config, parameters, data[0], parallel, digests, drawn, optimizer)
        self._update = training.make_update(
            sums,
            self.optimizer,
            lambda tree: jax.lax.psum(tree, AXIS),
            self.dropout_key if drawn else None,
        )

        def measure(state: tuple[Any, Any], batch: Any) -> TokenSums:
            return jax.lax.psum(sums(*state, batch, None), AXIS)

        self._measure = parallel.wrap(measure)
        self._held_out = data[1].whole(config.evaluation_batches or 2**31)

    def init_state(self) -> LanguageTrainState:
        return LanguageTrainState(*self.start())

    def step(
        self, state: LanguageTrainState, shared: Any, batch: Any
    ) -> tuple[LanguageTrainState, dict[str, jax.Array]]:
        return self._update(state, shared, batch)

    def held_out(self, state: LanguageTrainState, shared: Any, position: TrainingPosition) -> HeldOutMeans:
        """Measures the held-out part.

        Raises:
          UserError: the loss is not finite.
        """
        total: Any = 0.0
        for batch in self._held_out:
            found = self._measure((state.params, shared), self.parallel.put_whole(batch, 0))
            total = total + np.array(jax.tree.leaves(jax.device_get(found)), np.float64)
        loss, weight, right, *rows = total.tolist()
        counted = rows[0] if rows else weight
        if not math.isfinite(loss):
            raise diverged(f"the held-out loss after step {position.step:,} not finite", self.remedy)
        return HeldOutMeans(loss / weight, right / counted, counted)
