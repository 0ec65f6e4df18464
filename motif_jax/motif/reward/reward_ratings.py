"""Rates the messages of a dataset by trained rewards, now and over their training."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.core.distinct import distinct_rows
from motif_jax.motif.pairs import threshold
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.reward.reward_function import as_rows
from motif_jax.motif.reward.reward_model import RewardModel, of_members, read_run, saved_steps

_BLOCK = 256


@dataclasses.dataclass(frozen=True)
class DatasetMessages:
    """The distinct messages of a dataset, or of a run."""

    dataset: PairsDataset | None  # None for the messages of a run, which only rewards of the message can rate
    messages: np.ndarray  # uint8 [M, 256]
    ids: np.ndarray  # int32 [pairs, 2, L]
    counts: np.ndarray  # int64 [M], occurrences of each


def read_messages(folder: str | Path) -> DatasetMessages:
    """Reads the distinct messages of the dataset in `folder`; UserError if it is no dataset."""
    dataset = PairsDataset.open(folder)
    messages, ids = distinct_rows(dataset.data["message"].reshape(-1, 256))
    ids = ids.reshape(dataset.num_pairs, 2, dataset.length)
    return DatasetMessages(dataset, messages, ids, np.bincount(ids.reshape(-1), minlength=len(messages)))


def messages_met(met: Mapping[str, int]) -> DatasetMessages:
    """The messages of a run, from the number of steps that showed each."""
    rows, _ = as_rows(list(met))
    return DatasetMessages(None, rows, np.zeros((0, 2, 0), np.int32), np.array(list(met.values()), np.int64))


@dataclasses.dataclass(frozen=True)
class Rating:
    """Rewards float32 [N] of messages under one evaluation of a model."""

    raw: np.ndarray  # of the whole ensemble
    normalised: np.ndarray
    disagreement: np.ndarray | None  # standard deviation of members' normalised rewards; None for one


def rate(reward: RewardModel, members: np.ndarray) -> Rating:
    """Normalises raw rewards float32 [members, N] with the evaluation's own statistics."""
    raw = reward.together(members)
    normalised = np.asarray(reward.normalisation().normalise(raw))
    return Rating(raw, normalised, reward.disagreement(members) if reward.members > 1 else None)


def rate_dataset(reward: RewardModel, data: DatasetMessages, max_steps: int) -> Rating:
    """Rates distinct messages; where the model reads more, each by its mean over at most `max_steps` steps (NaN: on none)."""
    if reward.network.architecture.message_only:
        return rate(reward, reward.members_of_messages(reward.params, data.messages))
    return rate(reward, _means_over_steps(reward, data, max_steps))


def _means_over_steps(reward: RewardModel, data: DatasetMessages, max_steps: int) -> np.ndarray:
    dataset = data.dataset
    assert dataset is not None
    ids = data.ids.reshape(-1)
    fields = reward.network.architecture.fields
    flat = {name: dataset.data[name].reshape(ids.size, *dataset.data[name].shape[3:]) for name in fields}
    chosen = np.unique(np.linspace(0, ids.size - 1, min(ids.size, max_steps)).astype(int))
    program = jax.jit(functools.partial(of_members, reward.network.reward, reward.members))
    sums, counts = np.zeros((reward.members, len(data.messages))), np.zeros(len(data.messages))
    for start in range(0, chosen.size, _BLOCK):
        part = chosen[start : start + _BLOCK]
        padded = np.resize(part, _BLOCK)
        rows = {name: np.asarray(array[padded]) for name, array in flat.items()}
        values = np.asarray(program(reward.params, rows))[:, : part.size]
        for member in range(reward.members):
            np.add.at(sums[member], ids[part], values[member])
        np.add.at(counts, ids[part], 1)
    with np.errstate(invalid="ignore"):
        return (sums / counts).astype(np.float32)


def history(
    reward: RewardModel, data: DatasetMessages, max_evaluations: int, max_steps: int
) -> tuple[np.ndarray, list[int]]:
    """Normalised rewards [E, M] at evaluations spread evenly over the training, and their numbers [E]; of a file, one."""
    if reward.folder.suffix == ".safetensors":
        return rate_dataset(reward, data, max_steps).normalised[None], [reward.step]
    steps = [step for step in saved_steps(reward.folder) if step <= reward.step]
    places = np.linspace(0, len(steps) - 1, min(len(steps), max(1, max_evaluations))).round().astype(int)
    chosen = [steps[place] for place in np.unique(places)]
    rated = [rate_dataset(read_run(reward.folder, step), data, max_steps).normalised for step in chosen]
    return np.stack(rated), chosen


def facts(reward: RewardModel) -> Sequence[tuple[str, str, str]]:
    """Rows (label, value, note) about a model, for reports."""
    last: dict[str, Any] = reward.curve[-1] if reward.curve else {}
    found = [("evaluation", str(reward.step), f"{reward.members} network(s)")]
    kinds = {"accuracy without ties": "validation", "with new messages only": "validation_unseen"}
    for label, key in kinds.items():
        if pairs := last.get(f"{key}/accuracy_pairs"):
            found.append((label, f"{100 * last[f'{key}/accuracy']:.1f} %", f"{pairs:,} validation pairs"))
    return [*found, *threshold.facts(reward.statistics)]
