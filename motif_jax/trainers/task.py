"""The interface of a training for the offline trainer: a `Task`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.algorithms.finite import all_finite, keep_if, named_leaves
from motif_jax.devices.parallel import DataParallel
from motif_jax.support import seeds
from motif_jax.support.errors import UserError

# A digest beside those of files: each device draws its own dropout.
DEVICES = "number of devices"


def drawn_by(devices: int, dropout: bool) -> dict[str, str]:
    """The digest of the number of devices, where `dropout` makes the run depend on it; else none."""
    return {DEVICES: str(devices)} if dropout else {}


@dataclasses.dataclass
class TrainingPosition:
    """How far a training is; everything in it is JSON.

    Attributes:
      step: steps taken, those included that were left out because they were not finite.
      rows: one for each evaluation, the one before the first step included: what it found, by name.
      sums: since the last evaluation, of `Task.tally`.
      skipped: steps that were left out.
    """

    step: int = 0
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    sums: dict[str, float] = dataclasses.field(default_factory=dict)
    skipped: int = 0

    @property
    def epoch(self) -> int:
        """Epochs that are finished and evaluated."""
        return max(0, len(self.rows) - 1)

    def mean(self, name: str, over: str = "steps") -> float:
        """One of the sums divided by another; NaN before the first step."""
        count = self.sums.get(over, 0.0)
        return self.sums[name] / count if count else math.nan

    def learning_rate(self, schedule: Callable[[int], Any]) -> float:
        """That of the last step; NaN before the first."""
        return float(schedule(self.step - 1)) if self.step else math.nan

    def add(self, parts: Mapping[str, Any]) -> None:
        for name, value in parts.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
      row: of the curve: numbers by name (those with a slash go to the metrics), and other JSON.
      items: of its checkpoint besides the state: by name a tree of arrays, or JSON.
      text: the line that is logged.
    """

    row: dict[str, Any]
    items: Mapping[str, Any]
    text: str


class Task(Protocol):
    """A dataset, a loss and an evaluation, as `OfflineTrainer` takes them; inherit from it for what has a default.

    An epoch is what lies between two evaluations: a pass over the data, or any fixed number of steps. Nothing may depend
    on anything but the seed, the data and the number of the step: a run that is killed then ends as one that is not.

    Attributes:
      title: of the progress line, such as 'train reward'.
      unit: what progress counts, in the plural: 'pairs'.
      steps: of the whole run.
      steps_per_epoch: from one evaluation to the next; the last epoch may be shorter.
      chunk_steps: steps of one program; their batches are made at once, while the chunk before is computed.
      criterion: the number of an evaluation's row that says which is best: the smallest.
      digests: of everything read that decides the course, by what it is; a run resumes with the same alone.
      source: where that was read, for people.
      remedy: what to do about a training that diverged, behind 'start it in another --workdir with'.
    """

    parallel: DataParallel
    title: str
    unit: str
    steps: int
    steps_per_epoch: int
    chunk_steps: int
    criterion: str
    digests: Mapping[str, str]
    source: str
    remedy: str

    def init_state(self) -> Any:
        """The state before the first step, on the host: a NamedTuple of trees, a function of the seed. Asked for once."""
        ...

    def shared(self) -> Any:
        """What lies on every device and is not learned (tables, frozen parameters), or None."""
        return None

    def step(self, state: Any, shared: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        """One step of one device with its part of a batch: (new state, metrics). Pure; traced once.

        Both have to be equal on all devices: reduce over `devices.parallel.AXIS`. The metrics are scalars: the loss, the
        gradient's norm, what else. A step whose metrics are not finite is never applied.
        """
        ...

    def guarded_step(
        self, state: Any, shared: Any, batch: Any, goes_on: jax.Array
    ) -> tuple[Any, dict[str, Any], jax.Array]:
        """`step` applied only if `goes_on` (bool scalar) and its metrics are finite: (state, metrics, whether they are)."""
        new, metrics = self.step(state, shared, batch)
        # Not of the new state, which takes the old one's place: a gradient's norm is not finite where one number is not.
        finite = all_finite(metrics)
        return keep_if(finite & goes_on, new, state), metrics, finite

    def batches(self, first: int, count: int) -> Any:
        """Batches of steps `first` to `first + count`, which lie in one epoch: numpy leaves [count, ...], of equal shapes.

        Always those of a whole chunk, also where a run resumes in the middle of one: shapes may be the chunk's.
        """
        ...

    def batches_for(self, state: Any, shared: Any, first: int, count: int) -> Any:
        """The same of a task whose data follow from the state on the devices, as those of an agent that plays; its `chunk_steps` is 1."""
        del state, shared
        return self.batches(first, count)

    def batch_axes(self, batches: Any) -> Any:
        """The axis of each leaf of `batches` that is split over the devices, one for all or a tree prefix."""
        return 1

    def evaluate(self, state: Any, shared: Any, position: TrainingPosition) -> Evaluation:
        """Measures the state on the devices. UserError (`diverged`) if what it finds is not finite."""
        ...

    def units(self, step: int) -> int:
        """How many `unit`s `step` steps have gone through."""
        return step

    def tally(self, metrics: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """What is summed from one evaluation to the next, of the metrics [n] of n steps."""
        return {"steps": metrics["loss"].size, **{n: np.sum(v, dtype=np.float64) for n, v in metrics.items()}}

    def logged(self, metrics: Mapping[str, np.ndarray], seconds: float) -> dict[str, float]:
        """A row of metrics between evaluations, of the `metrics` [n] of the n steps since the last one; by default there is none."""
        del metrics, seconds
        return {}

    def shown(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Numbers of the epoch so far for the progress line."""
        return {"loss": sums["loss"] / sums["steps"]} if sums.get("steps") else {}

    def items(self, state: Any) -> dict[str, Any]:
        """The state as the items of a checkpoint, by name; of a state of `jax.ShapeDtypeStruct` too."""
        return state._asdict()

    def from_items(self, state: Any, items: Mapping[str, Any]) -> Any:
        """`state` with what a checkpoint holds in place of its own."""
        return state._replace(**items)

    def write(self, workdir: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes files of the task's own after every evaluation; by default there are none."""
        del workdir, rows

    def inspected(self, batch: Any) -> dict[str, Any]:
        """A batch as arrays by name, for a person who looks for what was wrong in it."""
        return named_leaves(batch)


def shapes_of(tree: Any) -> Any:
    """Shapes and dtypes in place of arrays."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def diverged(what: str, remedy: str) -> UserError:
    """The error that ends a training: `what` is 'loss of step 3 not finite', say."""
    return UserError(
        f"the training diverged: {what}; what was saved before stays; start it in another --workdir with {remedy}"
    )


def smaller_steps(config: ConfigDict) -> str:
    """The remedy for a training that diverged: what of `config.optimizer` makes its steps smaller."""
    rate, clip = config.optimizer.learning_rate, config.optimizer.max_gradient_norm
    more = "" if clip else " or with --config.optimizer.max_gradient_norm=1"
    return f"a smaller --config.optimizer.learning_rate (it is {rate:g}){more}"


def epoch_order(seed: int, epoch: int, rows: np.ndarray, batch_size: int) -> np.ndarray:
    """`rows` [N] in an order of this seed and epoch alone: int64 [steps, batch_size], -1 where the last is not full."""
    order = np.full(-(-rows.size // batch_size) * batch_size, -1, np.int64)
    order[: rows.size] = rows[seeds.rng(seed, "epoch", epoch).permutation(rows.size)]
    return order.reshape(-1, batch_size)
