"""Rates the messages of a dataset by trained rewards, now and over their training."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.core import text_bytes
from motif_jax.core.distinct import distinct_rows
from motif_jax.motif.pairs import threshold
from motif_jax.motif.pairs.dataset import PairsDataset, open_datasets
from motif_jax.motif.reward.reward_model import RewardModel, of_members, read_run, saved_steps

# Steps that one call of a network rates.
_BLOCK = 256
# Evaluations that show the change over a training: each rates all messages again.
_MAX_EVALUATIONS = 12


@dataclasses.dataclass(frozen=True)
class DatasetMessages:
    """The distinct messages of a dataset, or of a run.

    Attributes:
      dataset: None for the messages of a run, which only rewards of the message can rate.
      messages: uint8 [M, 256].
      ids: int32 [pairs, 2, L], index of each step's message.
      counts: int64 [M], occurrences of each.
    """

    dataset: PairsDataset | None
    messages: np.ndarray
    ids: np.ndarray
    counts: np.ndarray


def read_messages(folders: Sequence[str | Path]) -> DatasetMessages:
    """Reads the distinct messages of the datasets in `folders`; UserError if one is no dataset."""
    dataset = open_datasets(folders)
    messages, ids = distinct_rows(dataset.data["message"].reshape(-1, 256))
    ids = ids.reshape(dataset.num_pairs, 2, dataset.length)
    return DatasetMessages(
        dataset, messages, ids, np.bincount(ids.reshape(-1), minlength=len(messages))
    )


def messages_met(met: Mapping[str, int]) -> DatasetMessages:
    """The messages of a run, from the number of steps that showed each."""
    rows = text_bytes.padded_rows(list(met), 256)
    return DatasetMessages(
        None, rows, np.zeros((0, 2, 0), np.int32), np.array(list(met.values()), np.int64)
    )


@dataclasses.dataclass(frozen=True)
class Rating:
    """Rewards float32 [N] of messages under one evaluation of a model.

    Attributes:
      raw: of the whole ensemble.
      normalised: of the whole ensemble.
      disagreement: standard deviation of the members' normalised rewards; None for a single model.
    """

    raw: np.ndarray
    normalised: np.ndarray
    disagreement: np.ndarray | None


def rate(reward: RewardModel, members: np.ndarray) -> Rating:
    """Normalises raw rewards float32 [members, N] with the evaluation's own statistics."""
    raw = reward.combine_members(members)
    normalised = np.asarray(reward.normalisation().normalise(raw))
    disagreement = reward.disagreement(members) if reward.members > 1 else None
    return Rating(raw, normalised, disagreement)


def rate_dataset(reward: RewardModel, data: DatasetMessages, max_steps: int) -> Rating:
    """Rates distinct messages; where the model reads more, each by its mean over at most
    `max_steps` steps (NaN: on none).
    """
    if reward.network.architecture.message_only:
        return rate(reward, reward.members_of_messages(reward.params, data.messages))
    return rate(reward, _means_over_steps(reward, data, max_steps))


def _means_over_steps(reward: RewardModel, data: DatasetMessages, max_steps: int) -> np.ndarray:
    """Mean raw rewards float32 [members, M] over steps spread evenly over the dataset; NaN for
    messages on none of them.
    """
    dataset = data.dataset
    assert dataset is not None
    ids = data.ids.reshape(-1)
    fields = reward.network.architecture.fields
    flat = {
        name: dataset.data[name].reshape(ids.size, *dataset.data[name].shape[3:]) for name in fields
    }
    steps = np.unique(np.linspace(0, ids.size - 1, min(ids.size, max_steps)).astype(int))
    program = jax.jit(functools.partial(of_members, reward.network.reward, reward.members))
    sums = np.zeros((reward.members, len(data.messages)))
    counts = np.zeros(len(data.messages))
    for start in range(0, steps.size, _BLOCK):
        block = steps[start : start + _BLOCK]
        # Padded to one size, so that the program is compiled once.
        padded = np.resize(block, _BLOCK)
        rows = {name: np.asarray(array[padded]) for name, array in flat.items()}
        values = np.asarray(program(reward.params, rows))[:, : block.size]
        for member in range(reward.members):
            # Not `+=`, which counts a message once that several steps of a block show.
            np.add.at(sums[member], ids[block], values[member])
        np.add.at(counts, ids[block], 1)
    with np.errstate(invalid="ignore"):
        return (sums / counts).astype(np.float32)


def history(
    reward: RewardModel, data: DatasetMessages, max_steps: int
) -> tuple[np.ndarray, list[int]]:
    """Normalised rewards [E, M] at evaluations spread evenly over the training, and their numbers
    [E]; of a file, one.
    """
    if reward.folder.suffix == ".safetensors":
        return rate_dataset(reward, data, max_steps).normalised[None], [reward.step]
    steps = [step for step in saved_steps(reward.folder) if step <= reward.step]
    number = min(len(steps), _MAX_EVALUATIONS)
    indices = np.linspace(0, len(steps) - 1, number).round().astype(int)
    evaluations = [steps[index] for index in np.unique(indices)]
    rewards = [
        rate_dataset(read_run(reward.folder, step), data, max_steps).normalised
        for step in evaluations
    ]
    return np.stack(rewards), evaluations


def facts(reward: RewardModel) -> Sequence[tuple[str, str, str]]:
    """Rows (label, value, note) about a model, for reports."""
    last: dict[str, Any] = reward.curve[-1] if reward.curve else {}
    networks = "1 network" if reward.members == 1 else f"{reward.members} networks"
    rows = [("evaluation", str(reward.step), networks)]
    groups = {"accuracy without ties": "validation", "with new messages only": "validation_unseen"}
    for label, group in groups.items():
        pairs = last.get(f"{group}/accuracy_pairs")
        if pairs:
            rows.append(
                (label, f"{100 * last[f'{group}/accuracy']:.1f} %", f"{pairs:,} validation pairs")
            )
    return [*rows, *threshold.facts(reward.statistics)]
