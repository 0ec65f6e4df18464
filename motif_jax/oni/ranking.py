"""Kind 'ranking': a network trained on preferences between two messages, normalised by running
moments.

Source: Zheng et al. 2024, "Online Intrinsic Rewards", ONI-ranking; the loss is Motif's
(`motif.reward.preference`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax

from motif_jax.core import config as checks
from motif_jax.core import seeds, text_bytes
from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.core.verdicts import PAIR, TIE
from motif_jax.motif.reward import preference
from motif_jax.motif.reward.normalisation import Normalisation, RunningMoments
from motif_jax.motif.reward.preference import PreferenceBatch
from motif_jax.motif.reward.reward_model import messages_in_chunks
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork
from motif_jax.oni.config import LearnedReward
from motif_jax.oni.label_queue import Label
from motif_jax.oni.network_reward import WIDTH, Examples, Model, NetworkReward, TrainingBatch
from motif_jax.rl.intrinsic import BatchMessages, RewardSetup

MAX_GRADIENT_NORM = 10.0
# `MessageStats.label` of a text that some labelled pair has: it only says that there is a label.
_HAS_LABEL = 1


class RankingModel(Model):
    """Which of two texts is better."""

    def __init__(self, config: LearnedReward) -> None:
        clip = optax.clip_by_global_norm(MAX_GRADIENT_NORM)
        adam = optax.adam(config.training.learning_rate, eps=1e-8)
        network = RewardNetwork(RewardArchitecture(message=config.encoder))
        super().__init__(network, optax.chain(clip, adam), config.training.members)
        self._step = jax.jit(self._step_of_length, static_argnames="length")

    def step(
        self, state: EnsembleState, batch: TrainingBatch, step: int
    ) -> tuple[EnsembleState, dict[str, jax.Array]]:
        """A gradient step on B pairs: messages uint8 [B, 2, 256], `targets` float32 [B], the
        probability that the first is better.
        """
        size = len(batch.messages)
        # Each pair brings its texts, so that the program does not depend on how many distinct texts
        # there are.
        indices = np.arange(2 * size, dtype=np.int32)
        examples = PreferenceBatch(
            unique=indices,
            inverse=indices.reshape(size, 2, 1),
            rows={},
            targets=np.stack([batch.targets, 1.0 - batch.targets], axis=1).astype(np.float32),
            weights=np.tile(batch.weights, (self.members, 1)),
            labels=batch.labels,
        )
        return self._step(
            state, batch.messages.reshape(2 * size, -1), examples, length=batch.length
        )

    def _step_of_length(
        self, state: EnsembleState, messages: jax.Array, batch: PreferenceBatch, length: int | None
    ) -> tuple[EnsembleState, dict[str, jax.Array]]:
        step = preference.make_train_step(self.network, self.optimizer, self.members, length)
        return step(state, messages, batch)

    def rewards(self, params: Any, texts: np.ndarray) -> np.ndarray:
        """Raw rewards float32 [members, N] of texts uint8 [N, L]."""
        return messages_in_chunks(self.network.architecture, self.members, params, texts)

    def count_correct(
        self, params: Any, examples: Examples, indices: np.ndarray
    ) -> tuple[int, int]:
        """Pairs whose better text has the higher mean reward of the members, and pairs that are no
        ties; `indices` int64 [n].
        """
        labels = examples.labels[indices]
        texts = examples.messages[examples.rows[indices].reshape(-1)]
        # The mean over the members: [n, 2].
        pair_rewards = self.rewards(params, texts).mean(axis=0).reshape(-1, 2)
        counted = labels != TIE
        is_correct = (pair_rewards.argmax(axis=1) == labels) & counted
        return int(is_correct.sum()), int(counted.sum())


class RankingReward(NetworkReward):
    """(r - mean) / deviation of the network's r, with running moments; 0 unless above
    `config.threshold`.

    The moments are those of all steps paid since the first training; a batch is merged before it is
    normalised. With `config.decay` below 1, older steps count less. With `config.normalise` False
    the reward is r, without threshold. With `compat.oni_ranking_raw_reward` it is r, too, and the
    moments are still updated.

    Attributes:
      observed: observations of each text, by its row in `stats`: every `pairs.every`th step that
          showed it; int64 [rows].
    """

    form = PAIR
    certain = (1.0, 0.0, 0.5)
    model: RankingModel

    def __init__(self, setup: RewardSetup) -> None:
        super().__init__(setup)
        self.moments = RunningMoments()
        self._is_raw = self.run.config.compat.oni_ranking_raw_reward or not self.config.normalise
        self._labelled_pairs: set[tuple[str, ...]] = set()
        self.observed = np.zeros(0, np.int64)

    @classmethod
    def check(cls, config: LearnedReward) -> None:
        super().check(config)
        is_number = isinstance(config.threshold, int | float) and np.isfinite(config.threshold)
        checks.require(is_number, "reward.threshold", config.threshold, "a number")

    def make_model(self) -> RankingModel:
        return RankingModel(self.config)

    def compute(self, params: Any, texts: np.ndarray) -> np.ndarray:
        """Raw rewards float32 [N] of texts uint8 [N, L]: the members' mean."""
        return np.asarray(self.model.rewards(params, texts).mean(axis=0), np.float32)

    def is_new(self, label: Label) -> bool:
        rows = self.stats.rows(label.items, label.step, label.update_index)
        if label.items in self._labelled_pairs:
            return False
        self._labelled_pairs.add(label.items)
        self.stats.label[rows] = _HAS_LABEL
        return True

    def values(self, texts: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Rewards float32 [N] of texts uint8 [N, L], each shown by `counts` int64 [N] steps; zeros
        while nothing is paid yet.
        """
        if not self.pays:
            return np.zeros(len(texts), np.float32)
        raw = self.table.lookup(texts).values
        # A lookup has no counts, and changes no moments.
        if counts.sum():
            # Merged before the batch is normalised, as published; each step counts.
            self.moments.update(np.repeat(raw, counts), self.config.decay)
        return self.reward_of(raw)

    def reward_of(self, raw: np.ndarray) -> np.ndarray:
        """Raw rewards float32 [N], normalised by the moments so far and thresholded: float32
        [N].
        """
        if self._is_raw:
            return raw
        normalisation = Normalisation(
            self.moments.mean, self.moments.variance, self.config.threshold
        )
        return np.asarray(normalisation(raw), np.float32)

    def questions(
        self, batch: BatchMessages, rows: np.ndarray
    ) -> tuple[list[tuple[str, ...]], list[int], Sequence[float] | None]:
        """Pairs of observed texts, drawn by their frequency."""
        rng = seeds.rng(self.run.config.seed, "reward pairs", batch.update_index)
        self._observe(rows, batch.counts, rng)
        settings = self.config.pairs
        weights = self.observed[: len(self.stats)]
        if not weights.any() or self.source.queued() >= settings.waiting:
            return [], [], None
        if settings.distinct:
            weights = np.minimum(weights, 1)

        # With replacement, as published.
        drawn = rng.choice(len(weights), (settings.a_batch, 2), p=weights / weights.sum())
        pairs = [
            (self.stats.texts[first], self.stats.texts[second]) for first, second in drawn.tolist()
        ]
        if not self.run.config.compat.oni_requeue:
            pairs = [pair for pair in pairs if self._is_worth_asking(pair)]
        counts = {pair: pairs.count(pair) for pair in dict.fromkeys(pairs)}
        distinct_pairs: list[tuple[str, ...]] = list(counts)
        return distinct_pairs, list(counts.values()), self._scores(distinct_pairs)

    def _is_worth_asking(self, pair: tuple[str, str]) -> bool:
        """Equal texts would be a tie, which teaches nothing; a pair and its reverse are asked
        once.
        """
        if pair[0] == pair[1]:
            return False
        return pair not in self._labelled_pairs and pair[::-1] not in self._labelled_pairs

    def _observe(self, rows: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> None:
        """Counts every `pairs.every`th step of a batch."""
        if len(self.stats) > len(self.observed):
            self.observed = np.concatenate(
                [self.observed, np.zeros(max(1024, len(self.stats)), np.int64)]
            )
        # Steps of the same text are neighbours here: a random phase for each batch treats all texts
        # alike.
        every = self.config.pairs.every
        ends = np.cumsum(counts) + int(rng.integers(every))
        starts = ends - counts
        # Rows may repeat, see `OnlineReward`.
        np.add.at(self.observed, rows, ends // every - starts // every)

    def _scores(self, pairs: Sequence[tuple[str, ...]]) -> Sequence[float] | None:
        """How uncertain the reward is about each pair: the members' disagreement, or the nearness
        of a single network's rewards.
        """
        if self.run.config.queue.order != "uncertain" or not pairs:
            return None
        texts = text_bytes.padded_rows([text for pair in pairs for text in pair], WIDTH)
        members = self.config.training.members
        if members > 1:
            rewards = self.model.rewards(self.table.params, texts).reshape(members, -1, 2)
            return (rewards[..., 0] - rewards[..., 1]).std(axis=0).tolist()
        raw = self.table.lookup(texts).values.reshape(-1, 2)
        return (-np.abs(raw[:, 0] - raw[:, 1])).tolist()

    def own_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, data = super().own_state()
        observed = self.observed[: len(self.stats)].tolist()
        return arrays, {**data, "moments": dataclasses.astuple(self.moments), "observed": observed}

    def restore_own(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        super().restore_own(arrays, data)
        self.moments = RunningMoments(*data["moments"])
        self.observed = np.array(data["observed"], np.int64)

    def metrics(self) -> dict[str, float]:
        return {
            **super().metrics(),
            "reward/running_mean": float(self.moments.mean),
            "reward/running_variance": float(self.moments.variance),
        }
