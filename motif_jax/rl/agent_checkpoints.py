"""Reads and writes an agent's checkpoint.

Its items: `params` (the network's), `learner` (the rest of the training state), `reward` of a
reward that changes, and `progress` (counters and episode statistics, JSON). Running games are in
none: a resumed run begins new ones.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from motif_jax.core.checkpoints import ANY, JSON, Checkpoints
from motif_jax.core.errors import UserError
from motif_jax.core.training import run_files
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl.algorithms.algorithm import CONSTANT

FOLDER = "checkpoints"
BEST_METRIC = "episode/return"
# Entry of the progress: `NetworkKind.file_digests` of the training.
FILE_DIGESTS = "read_anew"
# Entry of the progress: `NetworkKind.start_digests` of the training.
START_DIGESTS = "started_from"
MODEL = "model"  # name of a digest: the weights that a language model started from
# Items of a checkpoint.
REWARD = "reward"
_PARAMS = "params"
_LEARNER = "learner"
_PROGRESS = "progress"


def open_checkpoints(
    workdir: str | os.PathLike[str], keep: int, save_every_steps: int | None = None
) -> Checkpoints:
    """The checkpoints of the run in `workdir`, for writing; those of `save_every_steps` are not
    removed in favour of timed ones.
    """
    return Checkpoints(
        Path(workdir) / FOLDER, keep=keep, keep_best=BEST_METRIC, milestone_steps=save_every_steps
    )


def save(
    checkpoints: Checkpoints,
    step: int,
    items: Mapping[str, Any],
    progress: Mapping[str, Any],
    metrics: Mapping[str, float],
    asynchronous: bool = True,
) -> None:
    """Saves the items after environment step `step`; `progress` is JSON-able."""
    checkpoints.save(step, {**items, _PROGRESS: progress}, metrics, asynchronous=asynchronous)


class Snapshot:
    """The checkpoint that a run resumes from. Each part of the system takes its items, and all
    items must be taken.
    """

    def __init__(self, checkpoints: Checkpoints, step: int) -> None:
        self._checkpoints = checkpoints
        self.step = step
        # An item that nobody takes would be missing in the next checkpoint.
        self._untaken = set(checkpoints.items(step))
        self.progress: dict[str, Any] = self.take({_PROGRESS: JSON})[_PROGRESS]

    def take(self, shapes: Mapping[str, Any]) -> dict[str, Any]:
        """The items of these names; the values of `shapes` are as for `Checkpoints.restore`."""
        self._untaken -= set(shapes)
        return self._checkpoints.restore(self.step, shapes)

    def require_all_taken(self) -> None:
        """Raises UserError where an item was not taken."""
        if self._untaken:
            raise UserError(
                f"{self._checkpoints.folder} checkpoint {self.step} holds {', '.join(sorted(self._untaken))}, which this "
                "version and config do not use: continue with those that wrote it, or choose another --workdir"
            )


def items_of_learner(state: Any) -> dict[str, Any]:
    """The checkpoint's items of a training state; every start reads or computes its `CONSTANT`
    fields again.
    """
    learner = {}
    for name, value in state._asdict().items():
        # Orbax saves no empty trees.
        if name not in ("params", *CONSTANT) and jax.tree.leaves(value):
            learner[name] = value
    return {_PARAMS: state.params, _LEARNER: learner}


def take_learner(snapshot: Snapshot, shapes: Any) -> Any:
    """The training state in `snapshot`, as numpy arrays; its `CONSTANT` fields are those of
    `shapes`, a state of shapes.
    """
    items = snapshot.take(items_of_learner(shapes))
    return shapes._replace(params=items[_PARAMS], **items[_LEARNER])


def restore_params(checkpoints: Checkpoints, step: int | None, network: PolicyNetwork) -> Any:
    """Reads only the network's parameters of checkpoint `step` (None: the newest), as numpy
    arrays.
    """
    shapes = jax.eval_shape(lambda: network.init(jax.random.PRNGKey(0)))
    return checkpoints.restore(step, {_PARAMS: shapes})[_PARAMS]


def restore_learner(checkpoints: Checkpoints, step: int) -> dict[str, Any]:
    """Reads the training state of checkpoint `step` but for the parameters, as numpy arrays by the
    names of its fields.
    """
    return checkpoints.restore(step, {_LEARNER: ANY})[_LEARNER]


def restore_progress(checkpoints: Checkpoints, step: int) -> dict[str, Any]:
    """Reads only the progress of checkpoint `step`."""
    return checkpoints.restore(step, {_PROGRESS: JSON})[_PROGRESS]


def learned_with(checkpoints: Checkpoints, step: int) -> dict[str, str]:
    """`NetworkKind.file_digests` as of checkpoint `step`; {} in checkpoints that lack it."""
    items = checkpoints.items(step)
    if _PROGRESS in items:
        return restore_progress(checkpoints, step).get(FILE_DIGESTS, {})
    return {
        name.removeprefix(run_files.FILE_OF): digest
        for name, digest in _digests_of_clone(checkpoints, step).items()
        if name.startswith(run_files.FILE_OF)
    }


def started_from(checkpoints: Checkpoints, step: int) -> dict[str, str]:
    """`NetworkKind.start_digests` as of checkpoint `step`; {} in checkpoints that lack it."""
    if _PROGRESS in checkpoints.items(step):
        return restore_progress(checkpoints, step).get(START_DIGESTS, {})
    digest = _digests_of_clone(checkpoints, step).get(MODEL)
    return {} if digest is None else {MODEL: digest}


def _digests_of_clone(checkpoints: Checkpoints, step: int) -> dict[str, str]:
    """The digests in a checkpoint of a clone, which the trainer of datasets has trained; {} in
    others.
    """
    if run_files.POSITION not in checkpoints.items(step):
        return {}
    return checkpoints.restore(step, {run_files.POSITION: JSON})[run_files.POSITION]["digests"]
