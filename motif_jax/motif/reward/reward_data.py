"""The data of a reward training: distinct messages, targets, split, and the batches of every
epoch.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.distinct import distinct_rows, used_length
from motif_jax.core.errors import UserError
from motif_jax.core.training.task import epoch_order
from motif_jax.core.verdicts import FIRST, SECOND, TIE
from motif_jax.motif.pairs import layout
from motif_jax.motif.pairs.dataset import PairsDataset, open_datasets
from motif_jax.motif.pairs.targets import PairTargets, read_targets, torch_split
from motif_jax.motif.reward.config import RewardConfig
from motif_jax.motif.reward.preference import PreferenceBatch
from motif_jax.motif.reward.reward_model import architecture_of
from motif_jax.nets.reward import RewardArchitecture

# Most bytes of a chunk's observations besides the messages.
_CHUNK_BYTES = 1 << 27
# The other observation fields that a model may read, and the dtype in which it reads them.
_ROW_ARRAYS = {"blstats": np.float32, "glyphs": np.int16}


@dataclasses.dataclass(frozen=True)
class RewardData:
    """The data of a reward training.

    Attributes:
      messages: uint8 [M, 256], the distinct messages; zeros [1, 256] for a model that reads none.
      ids: int32 [pairs, 2, L], index of each step's message.
      max_length: from this byte on all messages are zero.
      train: int64, indices of the labelled pairs of the training part.
      validation: int64, indices of the labelled pairs of the validation part.
      score: int8 [pairs], label by game score (0, 1, 2 equal); None without info/score.
      fields: observation fields that the model reads besides the message.
      digests: of all arrays that decide the training, by name ('data/message', 'labels').
    """

    dataset: PairsDataset
    messages: np.ndarray
    ids: np.ndarray
    max_length: int
    targets: PairTargets
    train: np.ndarray
    validation: np.ndarray
    score: np.ndarray | None
    fields: tuple[str, ...]
    digests: dict[str, str]

    @property
    def counts(self) -> np.ndarray:
        """Occurrences of each distinct message in the training part: int64 [M]."""
        return np.bincount(self.ids[self.train].reshape(-1), minlength=len(self.messages))

    def unseen(self) -> tuple[np.ndarray, np.ndarray]:
        """Which validation pairs have only (first), or any (second), messages absent from training:
        bool [V] each.
        """
        new = (self.counts == 0)[self.ids[self.validation].reshape(len(self.validation), -1)]
        return new.all(axis=1), new.any(axis=1)

    def rows(self, pairs: np.ndarray) -> dict[str, np.ndarray]:
        """The other observation fields of `pairs` [...]: name -> [..., 2, L, ...]."""
        return {
            name: self.dataset.data[name][pairs].astype(_ROW_ARRAYS[name]) for name in self.fields
        }


def open_dataset(config: RewardConfig, architecture: RewardArchitecture) -> PairsDataset:
    """Opens the dataset with all arrays that the model reads; UserError if it lacks one."""
    folders = checks.listed(config.dataset_dir or "")
    return open_datasets(folders, need=architecture.fields)


class LabelledParts(NamedTuple):
    """The targets of all pairs, and the indices int64 of the labelled ones by their part."""

    targets: PairTargets
    train: np.ndarray
    validation: np.ndarray


def labelled_parts(config: RewardConfig, dataset: PairsDataset) -> LabelledParts:
    """Reads the labels that `config` names; UserError where a part would have no pair, or none that
    counts in the loss.
    """
    names = checks.listed(config.annotator or "")
    weights = [float(weight) for weight in checks.listed(config.labels.annotator_weights)]
    are_usable = len(weights) in (0, len(names)) and all(
        0 < weight < math.inf for weight in weights
    )
    allowed = f"{len(names)} positive numbers, one an annotator"
    checks.require_key(config, "labels.annotator_weights", are_usable, allowed)
    targets = read_targets(
        dataset,
        names,
        soft=config.labels.soft,
        smoothing=config.labels.smoothing,
        confidence=config.labels.confidence,
        ties=config.labels.ties,
        annotator_weights=weights,
    )

    labelled = targets.known
    train, validation = torch_split(labelled.size, config.seed, config.train_fraction)
    if not train.size or not validation.size:
        raise UserError(
            f"{dataset.folder}: too few labelled pairs ({labelled.size}) for a training and a validation part"
        )
    parts = LabelledParts(targets, labelled[train], labelled[validation])
    for name, pairs in (("training", parts.train), ("validation", parts.validation)):
        counts = bool(targets.weights[pairs].sum() > 0)
        allowed = (
            f"half here: each of the {pairs.size:,} labelled pairs of the {name} part is a tie"
        )
        checks.require_key(config, "labels.ties", counts, allowed)
    return parts


def load(config: RewardConfig) -> RewardData:
    """Reads the dataset and labels that `config` names; UserError as `labelled_parts`, or an array
    was changed.
    """
    architecture = architecture_of(config)
    dataset = open_dataset(config, architecture)
    targets, train, validation = labelled_parts(config, dataset)

    shape = (dataset.num_pairs, 2, dataset.length)
    if "message" in architecture.fields:
        messages, ids = distinct_rows(dataset.data["message"].reshape(-1, 256))
    else:
        # One empty message, so that batches have the form of all others.
        messages = np.zeros((1, 256), np.uint8)
        ids = np.zeros(shape, np.int32)
    return RewardData(
        dataset=dataset,
        messages=messages,
        ids=ids.reshape(shape),
        max_length=used_length(messages),
        targets=targets,
        train=train,
        validation=validation,
        score=_score_labels(dataset),
        fields=tuple(name for name in architecture.fields if name != "message"),
        digests=_digests(dataset, architecture.fields, targets),
    )


def _digests(
    dataset: PairsDataset, fields: tuple[str, ...], targets: PairTargets
) -> dict[str, str]:
    # Raises UserError for a dataset that was changed after it was written.
    dataset.content_hash()
    arrays = {f"data/{name}": dataset.data[name] for name in fields}
    if "score" in dataset.info:
        arrays["info/score"] = dataset.info["score"]
    arrays |= {
        "labels": targets.labels,
        "targets": targets.targets,
        "weights of pairs": targets.weights,
    }
    return {name: layout.array_digest(array) for name, array in arrays.items()}


def _score_labels(dataset: PairsDataset) -> np.ndarray | None:
    """The labels int8 [pairs] that prefer the higher game score; None where the dataset has no
    scores.
    """
    if "score" not in dataset.info:
        return None
    score = np.asarray(dataset.info["score"], np.float64)
    labels = np.where(score[:, 1] > score[:, 0], SECOND, FIRST)
    return np.where(score[:, 0] == score[:, 1], TIE, labels).astype(np.int8)


class BatchPlan:
    """The order of the training pairs in `config.epochs` epochs, and the batches, which are split
    over `devices`.

    The order of an epoch depends on the seed and its number alone. All batches of a run have the
    same shapes: the list of distinct messages is padded to the longest of any batch.
    """

    def __init__(self, data: RewardData, config: RewardConfig, devices: int) -> None:
        self._data = data
        self._config = config
        self._devices = devices
        self.batch_size = config.batch_size
        self.steps_per_pass = math.ceil(data.train.size / config.batch_size)
        # Passes over the pairs in an epoch: a training has the steps that `least_steps` asks for.
        least_steps = config.least_steps
        required_steps = min(least_steps.per_text * len(data.messages), least_steps.most)
        steps_of_one_pass = max(1, config.epochs * self.steps_per_pass)
        self.passes = max(1, math.ceil(required_steps / steps_of_one_pass))
        self.steps_per_epoch = self.passes * self.steps_per_pass
        # Messages lie on the device as a table; rows of other fields go there with each chunk.
        row_bytes = sum(data.rows(data.train[:1])[name].nbytes for name in data.fields)
        steps_in_memory = max(1, _CHUNK_BYTES // max(1, row_bytes * config.batch_size))
        self.chunk_steps = min(config.chunk_steps, self.steps_per_epoch, steps_in_memory)
        self.bucket = self._bucket()
        # The epoch whose order is cached, and that order.
        self._cached_epoch = -1
        self._cached_order = np.empty((0, 0), np.int64)

    def order(self, epoch: int) -> np.ndarray:
        """Training pairs int64 [steps, batch] of `epoch`, -1 where the last batch is not full."""
        orders = []
        for number in range(self.passes):
            # Each pass has an order of its own.
            index = epoch * self.passes + number
            orders.append(epoch_order(self._config.seed, index, self._data.train, self.batch_size))
        return np.concatenate(orders)

    def _bucket(self) -> int:
        """The width of the list of distinct messages: the longest of any device's part of any
        batch, to a multiple of 16.
        """
        part_size = self.batch_size // self._devices
        longest = 1
        # All epochs before the first step, so that every step has the shapes of one program.
        for epoch in range(self._config.epochs):
            parts = self.order(epoch).reshape(-1, part_size)
            ids = self._data.ids[np.maximum(parts, 0)].reshape(len(parts), -1)
            # Sorted, each distinct message begins where two neighbours differ.
            changes = np.diff(np.sort(ids, axis=1), axis=1) != 0
            longest = max(longest, int(changes.sum(axis=1).max()) + 1)
        rounded = math.ceil(longest / 16) * 16
        # No part has more messages than steps.
        return min(rounded, max(longest, part_size * 2 * self._data.dataset.length))

    def batches(self, first: int, count: int) -> PreferenceBatch:
        """The batches of steps `first` to `first + count - 1`, all of one epoch; see `make`."""
        epoch, start = divmod(first, self.steps_per_epoch)
        if self._cached_epoch != epoch:
            self._cached_epoch = epoch
            self._cached_order = self.order(epoch)
        pairs = self._cached_order[start : start + count]
        return self.make(pairs, self._member_weights(pairs))

    def _member_weights(self, pairs: np.ndarray) -> np.ndarray:
        """Weights float32 [steps, members, B], the same for all members."""
        # -1 is padding, of weight 0.
        weights = np.where(pairs >= 0, self._data.targets.weights[np.maximum(pairs, 0)], 0)
        weights = np.repeat(weights[:, None], self._config.ensemble.members, axis=1)
        return weights.astype(np.float32)

    def make(
        self, pairs: np.ndarray, weights: np.ndarray, bucket: int | None = None
    ) -> PreferenceBatch:
        """The batches of `pairs` int64 [steps, B] (-1 for none), with the parts of the devices side
        by side.

        Returns:
          Leaves [steps, devices * bucket] (unique), [steps, members, B] (weights), [steps, B, ...]
          (others); see `axes`.
        """
        data = self._data
        bucket = bucket or self.bucket
        steps, size = pairs.shape
        part_size = size // self._devices
        # Padding has the content of pair 0, with weight 0 and the label of a tie, which no metric
        # counts.
        filled = np.maximum(pairs, 0)
        unique = np.zeros((steps, self._devices, bucket), np.int32)
        inverse = np.zeros((steps, size, 2, data.dataset.length), np.int32)
        for step in range(steps):
            # A device encodes the messages of its own part, in whose list `inverse` has indices.
            for device in range(self._devices):
                part = slice(device * part_size, (device + 1) * part_size)
                ids = data.ids[filled[step, part]]
                distinct, indices = np.unique(ids, return_inverse=True)
                unique[step, device, : distinct.size] = distinct
                inverse[step, part] = indices.reshape(ids.shape)
        return PreferenceBatch(
            unique=unique.reshape(steps, -1),
            inverse=inverse,
            rows=data.rows(filled),
            targets=data.targets.targets[filled],
            weights=weights,
            labels=np.where(pairs >= 0, data.targets.labels[filled], TIE).astype(np.int8),
        )


def axes(batch: PreferenceBatch) -> Any:
    """For each leaf of `BatchPlan.make` the axis that is split over devices."""
    return PreferenceBatch(
        unique=1, inverse=1, rows=dict.fromkeys(batch.rows, 1), targets=1, weights=2, labels=1
    )
