"""Base classes of tasks that train by gradients, and of those whose loss is a sum over a batch
divided by a count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.core import seeds
from motif_jax.core.devices.parallel import AXIS, DataParallel
from motif_jax.core.sections import DecayingOptimizer
from motif_jax.core.training import gradient_sums, schedules
from motif_jax.core.training.config import GradientConfig
from motif_jax.core.training.gradient_sums import Sums, SumsOf, TrainState
from motif_jax.core.training.run_files import DEVICES
from motif_jax.core.training.task import (
    Evaluation,
    Task,
    TrainingPosition,
    diverged,
    shapes_of,
    smaller_steps,
)
from motif_jax.lm import dropout
from motif_jax.lm.token_batches import BucketBatches


class TrainingData(NamedTuple):
    """The data of a training."""

    train: Any  # batches, such as `BucketBatches`
    held_out: Any
    digests: Mapping[str, str]
    source: str  # where the data are, for messages


class GradientTask(Task):
    """A task with an optimiser, frozen parameters, and batches that are split into micro-batches.

    Args:
      parameters: trained and frozen ones, numpy arrays.
      drawn: whether devices draw random numbers of their own.
      steps: steps of the training.
    """

    def __init__(
        self,
        config: GradientConfig,
        parameters: tuple[Any, Any],
        data: TrainingData,
        parallel: DataParallel,
        drawn: bool,
        steps: int,
    ) -> None:
        self.config = config
        self.parallel = parallel
        self._train = data.train
        self.source = data.source
        self._start, self._frozen = parameters
        self.learned = shapes_of(self._start)
        self.steps = steps
        self.steps_per_epoch = config.evaluate_every
        self.chunk_steps = config.chunk_steps
        self.digests = dict(data.digests)
        if drawn:
            # On another number of devices the draws differ.
            self.digests[DEVICES] = str(len(parallel.devices))
        self.remedy = smaller_steps(config.optimizer)
        # Matrices decay, norms and biases do not; low-rank additions are matrices.
        decays = schedules.matrices if isinstance(config.optimizer, DecayingOptimizer) else None
        self.optimizer = schedules.make_optimizer(config.optimizer, steps, decays)
        self.schedule = schedules.make_schedule(config.optimizer, steps)
        self._key = dropout.key(seeds.derive(config.seed, "dropout") % 2**32)

    def start(self) -> tuple[Any, Any, Any]:
        """Trained parameters, the optimiser's state, and step 0; releases the parameters, so call
        it once.
        """
        # Released, so that the host does not hold them beside the device's for the whole training.
        learned = self._start
        self._start = None
        # Not in jit, where each array of zeros would be compiled: here each shape is.
        return learned, jax.device_get(self.optimizer.init(learned)), np.int32(0)

    def dropout_key(self, step: jax.Array) -> jax.Array:
        """The key of a step on this device; call it inside a program over devices."""
        step_key = jax.random.fold_in(self._key, step)
        # Devices have other rows of the batch, and must not drop the same places of them.
        return jax.random.fold_in(step_key, jax.lax.axis_index(AXIS))

    def shared(self) -> Any:
        return self._frozen or None

    def batches(self, first: int, count: int) -> Any:
        micro_batches = self.config.accumulate
        # [count, batch, ...] becomes [count, micro-batches, rows, ...].
        batches = self._train.batches(first, count)
        return jax.tree.map(
            lambda leaf: leaf.reshape(count, micro_batches, -1, *leaf.shape[2:]), batches
        )

    def first_chunks(self) -> list[int]:
        # Other batches have one width, and so one program.
        if not isinstance(self._train, BucketBatches):
            return []
        return self._train.first_of_each_width(self.chunk_steps)

    def batch_axes(self, batches: Any) -> int:
        return 2

    def micro_batches(self, batch: Any) -> Any:
        """A held-out batch [B, ...] as micro-batches [A, B / A, ...], as a step splits its own."""
        return jax.tree.map(lambda x: x.reshape(self.config.accumulate, -1, *x.shape[1:]), batch)

    def units(self, step: int) -> int:
        return step * self.config.batch_size

    def evaluation(self, row: dict[str, Any], text: str, position: TrainingPosition) -> Evaluation:
        """Adds the numbers that all trainings measure."""
        row = {
            **row,
            "train/gradient_norm": position.mean("gradient_norm"),
            "optimizer/learning_rate": position.learning_rate(self.schedule),
        }
        return Evaluation(row, {}, f"step {position.step:,}: {text}")


class HeldOutMeans(NamedTuple):
    """Mean loss in nats and accuracy of the held-out part, and the number of items behind the
    accuracy.
    """

    loss: float
    accuracy: float
    counted: float


class SumsTask(GradientTask):
    """A training by a sum, see `gradient_sums.SumsOf`; subclasses define the evaluation."""

    def __init__(
        self,
        config: GradientConfig,
        sums: SumsOf,
        parameters: tuple[Any, Any],
        data: TrainingData,
        parallel: DataParallel,
        steps: int,
    ) -> None:
        drawn = config.dropout > 0
        super().__init__(config, parameters, data, parallel, drawn, steps)
        key = self.dropout_key if drawn else None
        self._sums = sums
        self._update = gradient_sums.make_update(
            sums, self.optimizer, lambda x: jax.lax.psum(x, AXIS), key
        )

        def measure(state: tuple[Any, Any], batch: Any) -> Sums:
            params, frozen = state
            # One micro-batch at a time, in the memory that a step has.
            micro_sums = jax.lax.map(
                lambda micro_batch: sums(params, frozen, micro_batch, None),
                self.micro_batches(batch),
            )
            device_sums = jax.tree.map(lambda leaf: leaf.sum(axis=0), micro_sums)
            return jax.lax.psum(device_sums, AXIS)

        self._measure = parallel.wrap(measure)
        # Made once, so that every evaluation measures the same rows.
        self._held_out = data.held_out.all_batches(config.evaluation_batches or 2**31)

    def computation(self) -> tuple[str, str] | None:
        dtype = getattr(self.config, "dtype", None)
        return None if dtype is None else (dtype, self.config.matmul_precision)

    def counted_loss(self, state: TrainState, shared: Any, batch: Any) -> jax.Array:
        return self._sums(state.params, shared, batch, None).loss

    def init_state(self) -> TrainState:
        return TrainState(*self.start())

    def step(
        self, state: TrainState, shared: Any, batch: Any
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        return self._update(state, shared, batch)

    def held_out(self, state: TrainState, shared: Any, position: TrainingPosition) -> HeldOutMeans:
        """Measures the held-out part; UserError if the loss is not finite."""
        # In float64, so that the sum does not depend on the number of batches.
        total: Any = 0.0
        for batch in self._held_out:
            sums = self._measure((state.params, shared), self.parallel.put_whole(batch, 0))
            total = total + np.array(jax.tree.leaves(jax.device_get(sums)), np.float64)

        # The fields of `Sums`; `counted` may be None, and then is not a leaf.
        loss, weight, correct, *counts = total.tolist()
        counted = counts[0] if counts else weight
        if not math.isfinite(loss):
            raise diverged(
                f"the held-out loss after step {position.step:,} not finite", self.remedy
            )
        return HeldOutMeans(loss / weight, correct / counted, counted)
