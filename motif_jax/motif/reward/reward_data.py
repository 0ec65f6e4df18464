"""The data of a reward training: distinct messages, targets, split, and the batches of every epoch."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import seeds
from motif_jax.core.distinct import distinct_rows, used_length
from motif_jax.core.errors import UserError
from motif_jax.core.training.task import epoch_order
from motif_jax.motif.pairs import layout
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.split import torch_split
from motif_jax.motif.pairs.targets import PairTargets, read_targets
from motif_jax.motif.reward.config import RewardConfig
from motif_jax.motif.reward.preference import PreferenceBatch
from motif_jax.motif.reward.reward_model import architecture_of
from motif_jax.nets.reward import RewardArchitecture

# Most bytes of a chunk's observations besides the messages.
_CHUNK_BYTES = 1 << 27
_ROW_ARRAYS = {"blstats": np.float32, "glyphs": np.int16}


@dataclasses.dataclass(frozen=True)
class RewardData:
    """The data of a reward training."""

    dataset: PairsDataset
    messages: np.ndarray  # uint8 [M, 256], the distinct messages; zeros [1, 256] for a model that reads none
    ids: np.ndarray  # int32 [pairs, 2, L], index of each step's message
    max_length: int  # from this byte on all messages are zero
    targets: PairTargets
    train: np.ndarray  # indices int64 of the labelled pairs of each part
    validation: np.ndarray
    score: np.ndarray | None  # int8 [pairs], label by game score (0, 1, 2 equal); None without info/score
    fields: tuple[str, ...]  # observation fields that the model reads besides the message
    digests: dict[str, str]  # of all arrays that decide the training, by name ('data/message', 'labels')

    @property
    def counts(self) -> np.ndarray:
        """Occurrences of each distinct message in the training part: int64 [M]."""
        return np.bincount(self.ids[self.train].reshape(-1), minlength=len(self.messages))

    def unseen(self) -> tuple[np.ndarray, np.ndarray]:
        """Which validation pairs have only (first), or any (second), messages absent from training: bool [V] each."""
        new = (self.counts == 0)[self.ids[self.validation].reshape(len(self.validation), -1)]
        return new.all(axis=1), new.any(axis=1)

    def rows(self, pairs: np.ndarray) -> dict[str, np.ndarray]:
        """The other observation fields of `pairs` [...]: name -> [..., 2, L, ...]."""
        return {name: self.dataset.data[name][pairs].astype(_ROW_ARRAYS[name]) for name in self.fields}


def open_dataset(config: RewardConfig, architecture: RewardArchitecture) -> PairsDataset:
    """Opens the dataset with all arrays that the model reads; UserError if it lacks an array or an annotation."""
    dataset = PairsDataset.open(config.dataset_dir or "", need=architecture.fields)
    names = checks.listed(config.annotator or "")
    if not names or set(names) - set(dataset.preference_names()):
        have = ", ".join(dataset.preference_names()) or "none yet: run annotate"
        raise UserError(f"config.annotator={config.annotator}: must name annotations of the dataset: {have}")
    for name in names:
        dataset.preference(name)
    return dataset


def load(config: RewardConfig) -> RewardData:
    """Reads the dataset and labels that `config` names; UserError if too few pairs are labelled, or an array was changed."""
    architecture = architecture_of(config)
    dataset = open_dataset(config, architecture)
    how = dataclasses.asdict(config.labels)
    how["annotator_weights"] = [float(weight) for weight in checks.listed(how["annotator_weights"])]
    targets = read_targets(dataset, checks.listed(config.annotator or ""), **how)
    known = targets.known
    train, validation = torch_split(known.size, config.seed, config.train_fraction)
    if not train.size or not validation.size:
        raise UserError(
            f"{dataset.folder}: {known.size} labelled pairs are too few for a training and a validation part"
        )
    shape = (dataset.num_pairs, 2, dataset.length)
    table, ids = np.zeros((1, 256), np.uint8), np.zeros(shape, np.int32)
    if "message" in architecture.fields:
        table, ids = distinct_rows(dataset.data["message"].reshape(-1, 256))
    return RewardData(
        dataset=dataset,
        messages=table,
        ids=ids.reshape(shape),
        max_length=used_length(table),
        targets=targets,
        train=known[train],
        validation=known[validation],
        score=_score_labels(dataset),
        fields=tuple(name for name in architecture.fields if name != "message"),
        digests=_digests(dataset, architecture.fields, targets),
    )


def _digests(dataset: PairsDataset, fields: tuple[str, ...], targets: PairTargets) -> dict[str, str]:
    dataset.content_hash()  # refuses a dataset that was changed after it was written
    arrays = {f"data/{name}": dataset.data[name] for name in fields}
    if "score" in dataset.info:
        arrays["info/score"] = dataset.info["score"]
    arrays |= {"labels": targets.labels, "targets": targets.targets, "weights of pairs": targets.weights}
    return {name: layout.array_digest(array) for name, array in arrays.items()}


def _score_labels(dataset: PairsDataset) -> np.ndarray | None:
    if "score" not in dataset.info:
        return None
    score = np.asarray(dataset.info["score"], np.float64)
    return np.where(score[:, 0] == score[:, 1], 2, score[:, 1] > score[:, 0]).astype(np.int8)


def passes(config: RewardConfig, messages: int, steps_per_pass: int) -> int:
    """Passes over the pairs in an epoch, so that a training has the steps that `least_steps` asks for."""
    wanted = min(config.least_steps.per_text * messages, config.least_steps.most)
    return max(1, math.ceil(wanted / max(1, config.epochs * steps_per_pass)))


class BatchPlan:
    """The order of the training pairs in `config.epochs` epochs, and the batches, which are split over `devices`.

    The order of an epoch depends on the seed and its number alone. All batches of a run have the same shapes:
    the list of distinct messages is padded to the longest of any batch.
    """

    def __init__(self, data: RewardData, config: RewardConfig, devices: int) -> None:
        self._data, self._config, self._devices = data, config, devices
        self.batch_size = config.batch_size
        self.steps_per_pass = -(-data.train.size // config.batch_size)
        self.passes = passes(config, len(data.messages), self.steps_per_pass)
        self.steps_per_epoch = self.passes * self.steps_per_pass
        row_bytes = sum(data.rows(data.train[:1])[name].nbytes for name in data.fields)
        fit = max(1, _CHUNK_BYTES // max(1, row_bytes * config.batch_size))
        self.chunk_steps = min(config.chunk_steps, self.steps_per_epoch, fit)
        self.bucket = self._bucket()
        self._order = -1, np.empty((0, 0), np.int64)
        # A member's sample depends on the member and the pair, not on the epoch.
        self._draws = [
            seeds.rng(config.seed, "bootstrap", member).poisson(1.0, data.dataset.num_pairs)
            for member in range(config.ensemble.members if config.ensemble.bootstrap else 0)
        ]

    def order(self, epoch: int) -> np.ndarray:
        """Training pairs int64 [steps, batch] of `epoch`, -1 where the last batch is not full."""
        orders = (
            epoch_order(self._config.seed, epoch * self.passes + number, self._data.train, self.batch_size)
            for number in range(self.passes)
        )
        return np.concatenate(list(orders))

    def _bucket(self) -> int:
        share = self.batch_size // self._devices
        most, ids = 1, self._data.ids
        for epoch in range(self._config.epochs):
            parts = self.order(epoch).reshape(-1, share)
            shown = np.sort(ids[np.maximum(parts, 0)].reshape(len(parts), -1), axis=1)
            most = max(most, int((np.diff(shown, axis=1) != 0).sum(axis=1).max()) + 1)
        return min(-(-most // 16) * 16, max(most, share * 2 * self._data.dataset.length))

    def batches(self, first: int, count: int) -> PreferenceBatch:
        epoch, start = divmod(first, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._order = epoch, self.order(epoch)
        pairs = self._order[1][start : start + count]
        return self.make(pairs, self._member_weights(pairs))

    def _member_weights(self, pairs: np.ndarray) -> np.ndarray:
        """Weights float32 [steps, members, B]; with bootstrap each member sees its own sample of the pairs."""
        weights = np.where(pairs >= 0, self._data.targets.weights[np.maximum(pairs, 0)], 0)
        weights = np.repeat(weights[:, None], self._config.ensemble.members, axis=1)
        if self._draws:
            weights = weights * np.stack([drawn[np.maximum(pairs, 0)] for drawn in self._draws], axis=1)
        return weights.astype(np.float32)

    def make(self, pairs: np.ndarray, weights: np.ndarray, bucket: int | None = None) -> PreferenceBatch:
        """The batches of `pairs` int64 [steps, B] (-1 for none), with the parts of the devices side by side.

        Returns:
          Leaves [steps, devices * bucket] (unique), [steps, members, B] (weights), [steps, B, ...] (others); see `axes`.
        """
        data, bucket = self._data, bucket or self.bucket
        steps, size = pairs.shape
        share = size // self._devices
        there = np.maximum(pairs, 0)
        unique = np.zeros((steps, self._devices, bucket), np.int32)
        inverse = np.zeros((steps, size, 2, data.dataset.length), np.int32)
        for step in range(steps):
            for device in range(self._devices):
                part = slice(device * share, (device + 1) * share)
                shown = data.ids[there[step, part]]
                distinct, places = np.unique(shown, return_inverse=True)
                unique[step, device, : distinct.size] = distinct
                inverse[step, part] = places.reshape(shown.shape)
        return PreferenceBatch(
            unique=unique.reshape(steps, -1),
            inverse=inverse,
            rows=data.rows(there),
            targets=data.targets.targets[there],
            weights=weights,
            labels=np.where(pairs >= 0, data.targets.labels[there], 2).astype(np.int8),
        )


def axes(batch: PreferenceBatch) -> Any:
    """For each leaf of `BatchPlan.make` the axis that is split over devices."""
    return PreferenceBatch(1, 1, dict.fromkeys(batch.rows, 1), 1, 2, 1)
