"""Reward models as one safetensors file with a JSON header, and back into a run folder."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from motif_jax.networks import reward_layout
from motif_jax.networks.reward import RewardArchitecture, RewardNetwork
from motif_jax.rewards.normalisation import QUANTILE_LEVELS
from motif_jax.rewards.trained import TrainedReward
from motif_jax.support.checkpoints import Checkpoints
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_bytes, atomic_write_json

FORMAT = "motif_jax.reward"
VERSION = 1


def write_safetensors(reward: TrainedReward, path: str | Path) -> None:
    """Writes parameters and statistics to one file, whole or not at all.

    Tensors have the neutral names and PyTorch's axis orders of `networks.layout`; those of an ensemble begin
    with member0/, member1/ ... The header's metadata hold one key `reward`, a JSON object: format, version,
    architecture, members, step, statistics, curve, config.
    """
    tensors = {}
    for member in range(reward.members):
        params = reward.params if reward.members == 1 else jax.tree.map(lambda x: x[member], reward.params)  # noqa: B023
        prefix = "" if reward.members == 1 else f"member{member}/"
        for name, array in reward_layout.to_named(params).items():
            tensors[prefix + name] = np.ascontiguousarray(array)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "architecture": dataclasses.asdict(reward.network.architecture),
        "members": reward.members,
        "step": reward.step,
        "statistics": reward.statistics,
        "curve": reward.curve,
        "config": reward.config,
    }
    atomic_write_bytes(path, save(tensors, {"reward": json.dumps(header)}))


def read_safetensors(path: str | Path) -> TrainedReward:
    """Reads what `write_safetensors` wrote.

    Raises:
      UserError: the file is damaged, not of this format, or tensors do not fit the architecture it names.
    """
    path = Path(path)
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} is not a safetensors file: {error}") from None
    header = json.loads(metadata.get("reward", "{}"))
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise UserError(f"{path} has no header of a reward model ({FORMAT} version {VERSION})")
    network = RewardNetwork(RewardArchitecture(**header["architecture"]))
    members = int(header["members"])
    try:
        if members == 1:
            params = reward_layout.from_named(tensors, network)
        else:
            each = [
                reward_layout.from_named(
                    {k.partition("/")[2]: v for k, v in tensors.items() if k.startswith(f"member{i}/")},
                    network,
                )
                for i in range(members)
            ]
            params = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    return TrainedReward(
        path,
        int(header["step"]),
        network,
        params,
        members,
        header["statistics"],
        header["config"],
        header["curve"],
    )


def write_run_folder(reward: TrainedReward, workdir: str | Path) -> None:
    """Writes a model as a run folder with this one evaluation, for agents and reports to use."""
    workdir = Path(workdir)
    architecture = dataclasses.asdict(reward.network.architecture)
    centre = architecture.pop("glyph_crop_centre")
    config = {
        **reward.config,
        "stage": "train_reward",
        "network": architecture,
        "ensemble": {"members": reward.members, "bootstrap": False},
        "compat": {**reward.config.get("compat", {}), "glyph_crop_centre": centre},
    }
    atomic_write_json(workdir / "config.json", config)
    items: dict[str, Any] = {
        "params": reward.params,
        "statistics": reward.statistics,
        "curve": {"rows": reward.curve},
        "config": config,
    }
    with Checkpoints(workdir / "checkpoints", keep=None) as checkpoints:
        checkpoints.save(reward.step, items, asynchronous=False)


def statistics_of(mean: float, variance: float, quantiles: list[float] | None) -> dict[str, Any]:
    """The statistics of a model that comes from elsewhere; without quantiles it can have no threshold."""
    return {
        "mean": mean,
        "variance": variance,
        "quantile_levels": list(QUANTILE_LEVELS) if quantiles else [],
        "quantiles": quantiles or [],
        "member_mean": [mean],
        "member_variance": [variance],
    }
