"""The interface of a training to the offline trainer: `Task`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from motif_jax.core import seeds
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.errors import UserError
from motif_jax.core.sections import Optimizer
from motif_jax.core.training.finite import all_finite, keep_if, named_leaves

# Name in an evaluation's row; the smallest value is the best.
CRITERION = "validation/loss"


def ratio(sums: Mapping[str, float], name: str, over: str) -> float:
    """One sum divided by another; NaN before the first step."""
    count = sums.get(over, 0.0)
    return sums[name] / count if count else math.nan


@dataclasses.dataclass
class TrainingPosition:
    """The progress of a training, as JSON.

    Attributes:
      step: number of steps taken, skipped ones included.
      rows: results by name of each evaluation; the first one comes before the first step.
      sums: those of `Task.tally` since the last evaluation.
      skipped: number of steps that were not applied because they were not finite.
    """

    step: int = 0
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    sums: dict[str, float] = dataclasses.field(default_factory=dict)
    skipped: int = 0

    @property
    def epoch(self) -> int:
        """Number of finished and evaluated epochs."""
        return max(0, len(self.rows) - 1)

    def mean(self, name: str, over: str = "steps") -> float:
        """One of the sums divided by another; NaN before the first step."""
        return ratio(self.sums, name, over)

    def learning_rate(self, schedule: Callable[[int], Any]) -> float:
        """The learning rate of the last step; NaN before the first."""
        # Schedules count the steps taken before.
        return float(schedule(self.step - 1)) if self.step else math.nan

    def add(self, parts: Mapping[str, Any]) -> None:
        """Adds to the sums."""
        for name, value in parts.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
      row: row of the curve: numbers by name (with a slash: logged as metrics), `CRITERION` among
        them, and other JSON.
      items: items of the checkpoint besides the state: a tree of arrays, or JSON, by name.
      text: the line to log.
    """

    row: dict[str, Any]
    items: Mapping[str, Any]
    text: str


class Task(Protocol):
    """A dataset, a loss and an evaluation, for `OfflineTrainer`; inherit from it for the defaults.

    An epoch is the part between two evaluations: a pass over the data, or a fixed number of steps.
    Results must depend on the seed, the data and the step's number alone, so that a resumed run
    ends with the same bits.
    """

    parallel: DataParallel
    title: str  # of the progress line, such as 'train reward'
    unit: str  # of progress, in the plural, such as 'pairs'
    steps: int
    steps_per_epoch: int  # from one evaluation to the next; the last epoch may be shorter
    # steps of one program; their batches are made at once, while the previous chunk runs
    chunk_steps: int
    # of all data that decide results, by name; a run resumes only with equal ones
    digests: Mapping[str, str]
    source: str  # place of the data, for messages
    remedy: str  # advice after divergence; follows 'start it in another --workdir with'

    def init_state(self) -> Any:
        """The state before the first step, on the host: a NamedTuple of trees, a function of the
        seed. Called once.
        """

    def shared(self) -> Any:
        """Arrays for every device that do not change (tables, frozen parameters), or None."""
        return None

    def step(self, state: Any, shared: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        """One step of one device with its part of a batch: (new state, metrics). Pure; traced once.

        Both must be equal on all devices: reduce over `core.devices.parallel.AXIS`. Metrics are
        scalars, such as the loss and the gradient's norm. A step whose metrics are not finite is
        not applied.
        """

    def guarded_step(
        self, state: Any, shared: Any, batch: Any, may_apply: jax.Array
    ) -> tuple[Any, dict[str, Any], jax.Array]:
        """`step` applied only if `may_apply` (bool scalar) and its metrics are finite: (state,
        metrics, whether they are).
        """
        new, metrics = self.step(state, shared, batch)
        # Metrics, not the new state, which overwrites the old one: the gradient's norm is not
        # finite if one of its numbers is not.
        finite = all_finite(metrics)
        return keep_if(finite & may_apply, new, state), metrics, finite

    def batches(self, first: int, count: int) -> Any:
        """Batches of steps `first` to `first + count` of one epoch: numpy leaves [count, ...], of
        equal shapes.

        It is called for whole chunks, also when a run resumes within one, so shapes may depend on
        the chunk.
        """

    def first_chunks(self) -> list[int]:
        """First steps of chunks whose batches have different shapes, where these are known before;
        else empty.
        """
        return []

    def batch_axes(self, batches: Any) -> Any:
        """The axis of each leaf of `batches` that is split over the devices, one for all or a tree
        prefix.
        """
        return 1

    def evaluate(self, state: Any, shared: Any, position: TrainingPosition) -> Evaluation:
        """Evaluates the state on the devices. UserError (`diverged`) if a result is not finite."""

    def units(self, step: int) -> int:
        """Number of `unit`s in `step` steps."""
        return step

    def tally(self, metrics: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Sums over the metrics [n] of n steps, which are added up until the next evaluation."""
        sums = {name: np.sum(values, dtype=np.float64) for name, values in metrics.items()}
        return {"steps": len(next(iter(metrics.values()))), **sums}

    def logged(self, metrics: Mapping[str, np.ndarray], seconds: float) -> dict[str, float]:
        """A row to log between evaluations, from the `metrics` [n] of the n steps since the last
        row; by default empty.
        """
        return {}

    def computation(self) -> tuple[str, str] | None:
        """Dtype and precision of the products that count in `throughput/mfu`; None: nothing
        counts.
        """
        return None

    def counted_loss(self, state: Any, shared: Any, batch: Any) -> jax.Array:
        """The loss of one micro-batch without dropout, traced to count its products.

        Only with a `computation`; the state has `params`, to which the gradient flows.
        """
        raise TypeError(f"{type(self).__name__} has no computation that counts")

    def shown(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Numbers of the epoch so far for the progress line."""
        return {"loss": sums["loss"] / sums["steps"]} if sums.get("steps") else {}

    def items(self, state: Any) -> dict[str, Any]:
        """The state as items of a checkpoint, by name; also for a state of
        `jax.ShapeDtypeStruct`.
        """
        return state._asdict()

    def write(self, workdir: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes the task's own files after every evaluation; by default none."""
        del workdir, rows

    def inspected(self, batch: Any) -> dict[str, Any]:
        """A batch as arrays by name, to save for inspection."""
        return named_leaves(batch)


def key_of(seed: int, name: str) -> jax.Array:
    """The key of a run's draws for purpose `name`."""
    # Without 64-bit types jax takes the low 32 bits of a seed. Taken here, the key is the same with
    # them.
    return jax.random.key(seeds.derive(seed, name) % 2**32)


def shapes_of(tree: Any) -> Any:
    """Shapes and dtypes of a tree's arrays."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def diverged(reason: str, remedy: str) -> UserError:
    """The error that ends a training; `reason` is a phrase such as 'loss of step 3 not finite'."""
    return UserError(
        f"the training diverged: {reason}; what was saved before stays; start it in another --workdir with {remedy}"
    )


def smaller_steps(optimizer: Optimizer) -> str:
    """The remedy after divergence: settings of the optimiser that make steps smaller."""
    remedy = f"a smaller --config.optimizer.learning_rate (it is {optimizer.learning_rate:g})"
    if not optimizer.max_gradient_norm:
        remedy += " or with --config.optimizer.max_gradient_norm=1"
    return remedy


def epoch_order(seed: int, epoch: int, rows: np.ndarray, batch_size: int) -> np.ndarray:
    """Shuffles `rows` [N] by seed and epoch: int64 [steps, batch_size], -1 fills the last batch."""
    # By the epoch's number, not by a generator that runs on, so that a resumed run needs no state
    # of it.
    order = rows[seeds.rng(seed, "epoch", epoch).permutation(rows.size)]
    return np.pad(order, (0, -rows.size % batch_size), constant_values=-1).reshape(-1, batch_size)
