"""Writes reward models as one safetensors file with a JSON header, and reads them back into a run
folder.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import safe_open

from motif_jax.core import digests, run_folder
from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_bytes, finite
from motif_jax.motif.reward import training_texts
from motif_jax.motif.reward.normalisation import QUANTILE_LEVELS
from motif_jax.motif.reward.reward_model import RewardModel, online_reader
from motif_jax.nets import layout
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork

FORMAT = "motif_jax.reward"
VERSION = 1


def write_safetensors(reward: RewardModel, path: str | Path) -> None:
    """Writes parameters and statistics to one file, whole or not at all.

    Tensors have the neutral names and PyTorch's axis orders of `nets.layout`; an ensemble's begin
    with member0/, member1/ ... `training_texts` are hashes of the training's messages. The metadata
    hold `reward`, a JSON object: format, version, architecture, members, step, statistics, curve
    (NaN as null), config; `learned` of an online reward (a table of labels has no tensors); and
    `digest` of this text and the tensors. Raises ValueError: the reward's statistics are not
    finite, as after a training that diverged.
    """
    tensors = _named_tensors(reward)
    tensors |= training_texts.tensors_of(Path(reward.folder))
    header = {
        "format": FORMAT,
        "version": VERSION,
        "architecture": dataclasses.asdict(reward.network.architecture),
        "members": reward.members,
        "step": reward.step,
        "statistics": reward.statistics,
        "curve": finite(reward.curve),
        "config": reward.config,
    }
    learned = reward.header()
    if learned is not None:
        header["learned"] = learned
    text = json.dumps(header, allow_nan=False)
    atomic_write_bytes(path, digests.safetensors_of("reward", text, tensors))


def _named_tensors(reward: RewardModel) -> dict[str, np.ndarray]:
    """The parameters by their names in the file."""
    members = {"": reward.params}
    if reward.members > 1:
        members = {
            f"member{index}/": jax.tree.map(operator.itemgetter(index), reward.params)
            for index in range(reward.members)
        }
    tensors = {}
    for prefix, params in members.items():
        for name, array in layout.to_torch(params).items():
            tensors[prefix + name] = np.ascontiguousarray(array)
    return tensors


def read_safetensors(path: str | Path) -> RewardModel:
    """Reads what `write_safetensors` wrote; UserError if the file is of another format."""
    path = Path(path)
    with safe_open(str(path), framework="numpy") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    # No parameters: `training_texts` reads them where they are asked for.
    tensors.pop(training_texts.TENSOR, None)
    header = json.loads(metadata.get("reward", "{}"))
    if (header.get("format"), header.get("version")) != (FORMAT, VERSION):
        raise UserError(f"{path} has no header of a reward model ({FORMAT} version {VERSION})")
    return _of_header(header, tensors, path)


def _of_header(
    header: Mapping[str, Any], tensors: Mapping[str, np.ndarray], path: Path
) -> RewardModel:
    """The model of a file; a reward that was learned online has a kind of model of its own."""
    network = RewardNetwork(RewardArchitecture(**header["architecture"]))
    members = header["members"]
    reader = online_reader() if "learned" in header else None
    # Of a table of labels there is no network whose parameters could be read.
    trained: Any = network if reader is None else reader.network(header["config"], network)
    params = {} if trained is None else _params(tensors, trained, members)
    curve = [_with_nan(row) for row in header["curve"]]
    parts = (
        path,
        header["step"],
        network,
        params,
        members,
        header["statistics"],
        header["config"],
        curve,
    )
    return RewardModel(*parts) if reader is None else reader.model(parts, header)


def _with_nan(value: Any) -> Any:
    """JSON data with NaN in place of null."""
    if isinstance(value, dict):
        return {name: _with_nan(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_nan(part) for part in value]
    return math.nan if value is None else value


def _params(tensors: Mapping[str, np.ndarray], network: layout.Network, members: int) -> Any:
    """The parameters of named tensors, those of an ensemble with a leading axis of members."""
    if members == 1:
        return layout.from_named(tensors, network)
    member_params = []
    for index in range(members):
        prefix = f"member{index}/"
        named = {
            name.removeprefix(prefix): array
            for name, array in tensors.items()
            if name.startswith(prefix)
        }
        member_params.append(layout.from_named(named, network))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *member_params)


def write_run_folder(reward: RewardModel, workdir: str | Path) -> None:
    """Writes a model as a run folder with this one evaluation."""
    workdir = Path(workdir)
    architecture = dataclasses.asdict(reward.network.architecture)
    # A run folder has it among its switches, see `reward_model.read_architecture`.
    centre = architecture.pop("glyph_crop_centre")
    config = {
        **reward.config,
        "stage": "train_reward",
        "network": architecture,
        "ensemble": {"members": reward.members},
        "compat": {**reward.config.get("compat", {}), "glyph_crop_centre": centre},
    }
    run_folder.describe(workdir, config)
    items: dict[str, Any] = {
        "params": reward.params,
        "statistics": reward.statistics,
        "curve": {"rows": reward.curve},
        "config": config,
    }
    training_texts.copy_training_texts(Path(reward.folder), workdir)
    # The checkpoint is written last, since it marks a whole folder; first, that of a killed import
    # is removed.
    shutil.rmtree(workdir / "checkpoints", ignore_errors=True)
    with Checkpoints(workdir / "checkpoints", keep=None) as checkpoints:
        checkpoints.save(reward.step, items, asynchronous=False)


def statistics_of(mean: float, variance: float, quantiles: list[float] | None) -> dict[str, Any]:
    """The statistics of an imported model; without quantiles no threshold can be chosen."""
    return {
        "mean": mean,
        "variance": variance,
        "quantile_levels": list(QUANTILE_LEVELS) if quantiles else [],
        "quantiles": quantiles or [],
        "member_mean": [mean],
        "member_variance": [variance],
    }
