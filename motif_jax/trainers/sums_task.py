"""Trainings whose loss is a sum over a batch divided by a count, as tasks of the offline trainer."""

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
from motif_jax.trainers.task import Task, TrainingPosition, diverged, drawn_by, shapes_of


class SumsBatches(Protocol):
    """Batches of steps, leaves [count, batch_size, ...], and all of a held-out part."""

    def batches(self, first: int, count: int) -> Any: ...

    def whole(self, most: int) -> Sequence[Any]: ...


class HeldOutMeans(NamedTuple):
    """Mean loss in nats and accuracy of the held-out part, and how much they are means of."""

    loss: float
    weight: float
    accuracy: float


class SumsTask(Task):
    """One training; inherit from it for what is evaluated.

    Args:
      config: of the run.
      sums: the loss, see `training.SumsOf`.
      parameters: those that are learned and those that are frozen, numpy arrays.
      data: batches to learn from, and batches to measure with.
      parallel: the devices.
      digests: of everything read.
    """

    criterion = "validation/loss"

    def __init__(
        self,
        config: ConfigDict,
        sums: SumsOf,
        parameters: tuple[Any, Any],
        data: tuple[SumsBatches, SumsBatches],
        parallel: DataParallel,
        digests: Mapping[str, str],
    ) -> None:
        self.config, self.parallel, self.train = config, parallel, data[0]
        self._start, self._frozen = parameters
        self.learned = shapes_of(self._start)
        self.steps, self.steps_per_epoch = config.get("max_steps") or config.steps, config.evaluate_every
        self.chunk_steps = config.chunk_steps
        self.digests = {**digests, **drawn_by(len(parallel.devices), config.dropout > 0)}
        self.remedy = (
            f"a smaller --config.optimizer.learning_rate (it is {config.optimizer.learning_rate:g}) or with "
            "--config.optimizer.max_gradient_norm=1"
        )
        # Matrices decay, norms and biases do not; of additions both matrices do.
        self.optimizer = schedules.make_optimizer(config.optimizer, self.steps, schedules.matrices)
        self.schedule = schedules.make_schedule(config.optimizer, self.steps)
        key = dropout.key(seeds.derive(config.seed, "dropout") % 2**32)

        def key_of(step: jax.Array) -> jax.Array:
            return jax.random.fold_in(jax.random.fold_in(key, step), jax.lax.axis_index(AXIS))

        self._update = training.make_update(
            sums,
            self.optimizer,
            lambda tree: jax.lax.psum(tree, AXIS),
            key_of if config.dropout > 0 else None,
        )

        def measure(state: tuple[Any, Any], batch: Any) -> TokenSums:
            return jax.lax.psum(sums(*state, batch, None), AXIS)

        self._measure = parallel.wrap(measure)
        self._held_out = data[1].whole(config.evaluation_batches or 2**31)

    def init_state(self) -> LanguageTrainState:
        learned, self._start = self._start, None
        return LanguageTrainState(learned, jax.device_get(jax.jit(self.optimizer.init)(learned)), np.int32(0))

    def shared(self) -> Any:
        return self._frozen or None

    def step(
        self, state: LanguageTrainState, shared: Any, batch: Any
    ) -> tuple[LanguageTrainState, dict[str, jax.Array]]:
        return self._update(state, shared, batch)

    def batches(self, first: int, count: int) -> Any:
        parts, whole = self.config.accumulate, self.train.batches(first, count)
        return jax.tree.map(lambda leaf: leaf.reshape(count, parts, -1, *leaf.shape[2:]), whole)

    def batch_axes(self, batches: Any) -> int:
        return 2

    def held_out(self, state: LanguageTrainState, shared: Any, position: TrainingPosition) -> HeldOutMeans:
        """Measures the held-out part.

        Raises:
          UserError: the loss is not finite.
        """
        total = np.zeros(len(TokenSums._fields))
        for batch in self._held_out:
            found = self._measure((state.params, shared), self.parallel.put_whole(batch, 0))
            total += np.asarray(jax.device_get(found), np.float64)
        loss, count, right = total.tolist()
        if not math.isfinite(loss):
            raise diverged(f"the held-out loss after step {position.step:,} not finite", self.remedy)
        return HeldOutMeans(loss / count, count, right / count)
