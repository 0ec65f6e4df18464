"""What an agent's checkpoint holds, and how it is written and read.

Items: `params` (the network's parameters, all that playing needs), `learner` (optimiser, counts of updates and
steps, random key, value statistics), `progress` (counters and episode statistics, JSON).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import optax

from motif_jax.algorithms.appo import TrainState, make_state
from motif_jax.networks.agent import AgentNetwork
from motif_jax.support.checkpoints import JSON, Checkpoints

FOLDER = "checkpoints"
BEST_METRIC = "episode/return"
_PARAMS, _LEARNER, _PROGRESS = "params", "learner", "progress"


def open_checkpoints(workdir: str | os.PathLike[str], keep: int) -> Checkpoints:
    """The checkpoints of the run in `workdir`, to be written."""
    return Checkpoints(Path(workdir) / FOLDER, keep=keep, keep_best=BEST_METRIC)


def save(
    checkpoints: Checkpoints,
    step: int,
    state: TrainState,
    progress: dict[str, Any],
    metrics: dict[str, float],
    asynchronous: bool = True,
) -> None:
    """Saves a training state after environment step `step`; `progress` is JSON-able."""
    learner = {name: value for name, value in _learner_part(state).items() if jax.tree.leaves(value)}
    items = {_PARAMS: state.params, _LEARNER: learner, _PROGRESS: progress}
    checkpoints.save(step, items, metrics, asynchronous=asynchronous)


def restore(
    checkpoints: Checkpoints, step: int, network: AgentNetwork, optimizer: optax.GradientTransformation
) -> tuple[TrainState, dict[str, Any]]:
    """Reads the training state (numpy arrays, without reward parameters) and progress of checkpoint `step`.

    Raises:
      UserError: the checkpoint has other shapes; they are named.
    """
    shapes = jax.eval_shape(lambda: make_state(network, optimizer, jax.random.PRNGKey(0)))
    learner = {name: value for name, value in _learner_part(shapes).items() if jax.tree.leaves(value)}
    items = checkpoints.restore(step, {_PARAMS: shapes.params, _LEARNER: learner, _PROGRESS: JSON})
    return shapes._replace(params=items[_PARAMS], **items[_LEARNER]), items[_PROGRESS]


def restore_params(checkpoints: Checkpoints, step: int | None, network: AgentNetwork) -> Any:
    """Reads only the network's parameters of checkpoint `step` (None: the newest), as numpy arrays.

    Raises:
      UserError: there is no such checkpoint, or it has other shapes; they are named.
    """
    shapes = jax.eval_shape(lambda: network.init(jax.random.PRNGKey(0)))
    return checkpoints.restore(step, {_PARAMS: shapes})[_PARAMS]


def restore_progress(checkpoints: Checkpoints, step: int) -> dict[str, Any]:
    """Reads only the progress of checkpoint `step`."""
    return checkpoints.restore(step, {_PROGRESS: JSON})[_PROGRESS]


def _learner_part(state: TrainState) -> dict[str, Any]:
    return {
        "opt_state": state.opt_state,
        "step": state.step,
        "env_steps": state.env_steps,
        "key": state.key,
        "value_statistics": state.value_statistics,
    }
