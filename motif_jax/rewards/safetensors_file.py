"""Writes reward models as one safetensors file with a JSON header, and reads them back into a run folder."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open

from motif_jax.networks import reward_layout
from motif_jax.networks.reward import DTYPES, MESSAGE_MODELS, RewardArchitecture, RewardNetwork
from motif_jax.rewards import online_model, training_texts
from motif_jax.rewards.normalisation import QUANTILE_LEVELS
from motif_jax.rewards.online_model import OnlineRewardModel
from motif_jax.rewards.reward_model import RewardModel
from motif_jax.support import digests, run_folder
from motif_jax.support.checkpoints import Checkpoints
from motif_jax.support.config import is_finite
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_bytes

FORMAT = "motif_jax.reward"
VERSION = 1


def write_safetensors(reward: RewardModel, path: str | Path) -> None:
    """Writes parameters and statistics to one file, whole or not at all.

    Tensors have the neutral names and PyTorch's axis orders of `networks.layout`; an ensemble's begin with member0/, member1/
    ... `training_texts` are hashes of the training's messages. The metadata hold `reward`, a JSON object: format, version,
    architecture, members, step, statistics, curve (NaN as null), config; `learned` of an online reward (a table of labels has
    no tensors); and `digest` of this text and the tensors.

    Raises:
      UserError: the reward's statistics are not finite, as after a training that diverged.
    """
    tensors = {}
    for member in range(reward.members):
        params = reward.params if reward.members == 1 else jax.tree.map(lambda x: x[member], reward.params)  # noqa: B023
        prefix = "" if reward.members == 1 else f"member{member}/"
        for name, array in reward_layout.to_named(params).items():
            tensors[prefix + name] = np.ascontiguousarray(array)
    tensors |= training_texts.tensors_of(Path(reward.folder))
    header = {
        "format": FORMAT,
        "version": VERSION,
        "architecture": dataclasses.asdict(reward.network.architecture),
        "members": reward.members,
        "step": reward.step,
        "statistics": reward.statistics,
        "curve": _replace(reward.curve, _is_no_number, None),
        "config": reward.config,
    }
    if isinstance(reward, OnlineRewardModel):
        header["learned"] = reward.header()
    _check_header(header, reward.folder)
    text = json.dumps(header, allow_nan=False)
    atomic_write_bytes(path, digests.safetensors_of("reward", text, tensors))


def _is_no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _replace(tree: Any, which: Any, by: Any) -> Any:
    """JSON data with `by` in place of the scalars for which `which` is true."""
    if isinstance(tree, Mapping):
        return {name: _replace(value, which, by) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_replace(value, which, by) for value in tree]
    return by if which(tree) else tree


def read_safetensors(path: str | Path) -> RewardModel:
    """Reads what `write_safetensors` wrote.

    Raises:
      UserError: the file is damaged, not of this format, or tensors do not fit the architecture it names.
    """
    path = Path(path)
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a safetensors file of numpy's types: {error}") from None
    no_header = f"{path} has no header of a reward model ({FORMAT} version {VERSION})"
    if "reward" not in metadata:
        raise UserError(no_header)
    text = metadata.pop("reward")
    if metadata != {"digest": digests.of_tensors(text, tensors)}:
        raise UserError(
            f"{path} is damaged: it has another digest than it was written with; make or copy it again"
        )
    tensors.pop(training_texts.TENSOR, None)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: its header `reward` is no JSON: {error}") from None
    if not isinstance(header, dict) or (header.get("format"), header.get("version")) != (FORMAT, VERSION):
        raise UserError(no_header)
    _check_header(header, path)
    network, members = RewardNetwork(RewardArchitecture(**header["architecture"])), header["members"]
    online = "learned" in header
    trained = online_model.network_of(header["config"], network) if online else network
    params = {} if trained is None else _params(tensors, trained, members, path)
    curve = _replace(header["curve"], lambda value: value is None, math.nan)
    parts = (path, header["step"], network, params, members, header["statistics"], header["config"], curve)
    return OnlineRewardModel(*parts, **online_model.of_header(header)) if online else RewardModel(*parts)


def _params(
    tensors: Mapping[str, np.ndarray], network: reward_layout.Network, members: int, path: Path
) -> Any:
    try:
        if members == 1:
            return reward_layout.from_named(tensors, network)
        each = [
            reward_layout.from_named(
                {k.partition("/")[2]: v for k, v in tensors.items() if k.startswith(f"member{i}/")}, network
            )
            for i in range(members)
        ]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise UserError(f"{path}: {error}") from None


def _check_header(header: Mapping[str, Any], place: str | Path) -> None:
    try:
        problem = _problem(header)
        if problem is None and "learned" in header:
            problem = online_model.header_problem(header)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = f"the header lacks a part, or has another in its place ({error!r})"
    if problem is not None:
        raise UserError(f"{place}: {problem}")


def _problem(header: Mapping[str, Any]) -> str | None:
    """Names the fault of a header; raises Python's errors where a part is missing."""
    architecture, statistics, members = header["architecture"], header["statistics"], header["members"]
    if _types(architecture) != _types(dataclasses.asdict(RewardArchitecture())) or not _is_model(
        architecture
    ):
        return f"architecture of the reward is no model: {architecture}"
    if type(members) is not int or type(header["step"]) is not int or members < 1 or header["step"] < 0:
        return "members and step of the reward must be whole numbers"
    objects = [header["config"], header["config"].get("compat", {}), *header["curve"]]
    if not all(isinstance(value, dict) for value in objects):
        return "config and curve of the reward must hold JSON objects"
    numbers = [statistics["mean"], statistics["variance"]]
    for name in ("quantiles", "quantile_levels", "member_mean", "member_variance"):
        numbers += statistics[name]
    if advice := statistics.get("advice"):
        given = advice["lump_edge"], advice["threshold"], advice["paid_share"]
        numbers += [*advice["paid_shares"], advice["lump_share"], *(x for x in given if x is not None)]
    if not all(map(is_finite, numbers)) or statistics["variance"] < 0:
        return (
            "statistics of the reward must be finite numbers, as they are not after a training that diverged"
        )
    lengths = [len(statistics[name]) for name in ("quantiles", "member_mean", "member_variance")]
    if lengths != [len(statistics["quantile_levels"]), members, members]:
        return (
            f"statistics of the reward must have a quantile a level, and moments of each of {members} members"
        )
    return None


def _types(section: Mapping[str, Any]) -> dict[str, type]:
    return {name: type(value) for name, value in section.items()}


def _is_model(architecture: Mapping[str, Any]) -> bool:
    known = architecture["message"] in MESSAGE_MODELS and architecture["dtype"] in DTYPES
    sizes = [value for value in architecture.values() if type(value) is int]
    return known and min(sizes) > 0 and RewardArchitecture(**architecture).problem() is None


def write_run_folder(reward: RewardModel, workdir: str | Path) -> None:
    """Writes a model as a run folder with this one evaluation."""
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
    run_folder.describe(workdir, config)
    items: dict[str, Any] = {
        "params": reward.params,
        "statistics": reward.statistics,
        "curve": {"rows": reward.curve},
        "config": config,
    }
    training_texts.copy_training_texts(Path(reward.folder), workdir)
    # The checkpoint is written last, since it marks a whole folder; first, that of a killed import is removed.
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
