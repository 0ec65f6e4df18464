"""Kind 'classification': a classifier trained on the labels decides what is helpful
(ONI-classification).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax

from motif_jax.core import seeds
from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.core.verdicts import SINGLE, YES
from motif_jax.nets.classifier import MessageClassifier
from motif_jax.oni import classification_loss
from motif_jax.oni.classification_loss import LabelBatch
from motif_jax.oni.config import LearnedReward
from motif_jax.oni.label_set import Examples
from motif_jax.oni.message_stats import NO_LABEL
from motif_jax.oni.network_reward import NetworkReward
from motif_jax.oni.online_model import classifier_probabilities
from motif_jax.oni.reward_trainer import Model, TrainingBatch
from motif_jax.rl.intrinsic import BatchMessages


class ClassifierModel(Model):
    """Whether a text is helpful."""

    def __init__(self, config: LearnedReward, seed: int) -> None:
        network = MessageClassifier(config.encoder, config.classifier.dropout)
        # As published: no clip of the gradient, no decay of weights.
        optimizer = optax.adam(config.training.learning_rate, eps=1e-8)
        super().__init__(network, optimizer, config.training.members)
        # Raw data of the key of dropout: a typed key would lie on one device.
        key = jax.random.key(seeds.derive(seed, "reward dropout") % (1 << 31))
        self._key = np.asarray(jax.random.key_data(key))
        self._step = jax.jit(self._numbered_step, static_argnames="length")

    def step(
        self, state: EnsembleState, batch: TrainingBatch, step: int
    ) -> tuple[EnsembleState, dict[str, jax.Array]]:
        examples = LabelBatch(batch.messages[:, 0], batch.targets, batch.weights)
        return self._step(state, examples, self._key, np.int32(step), length=batch.length)

    def _numbered_step(
        self,
        state: EnsembleState,
        batch: LabelBatch,
        key: jax.Array,
        number: jax.Array,
        length: int | None,
    ) -> tuple[EnsembleState, dict[str, jax.Array]]:
        """Step `number` of the run, whose dropout depends on the number, so that a resumed run
        repeats it.
        """
        step = classification_loss.make_train_step(
            self.network, self.optimizer, self.members, length
        )
        return step(state, batch, jax.random.fold_in(jax.random.wrap_key_data(key), number))

    def probabilities(self, params: Any, texts: np.ndarray) -> np.ndarray:
        """Probabilities of yes float32 [members, N] of texts uint8 [N, L]."""
        return classifier_probabilities(self.network.message, self.members, params, texts)

    def count_correct(
        self, params: Any, examples: Examples, indices: np.ndarray
    ) -> tuple[int, int]:
        texts = examples.messages[examples.rows[indices, 0]]
        says_yes = self.probabilities(params, texts).mean(axis=0) > 0.5
        is_yes = examples.labels[indices] == YES
        return int((says_yes == is_yes).sum()), len(indices)


class ClassificationReward(NetworkReward):
    """1 where the probability of yes is strictly above `config.classifier.threshold`, else 0.

    Texts with a label are classified, too: the label counts only by what the network learns from
    it. With `config.value` 'probability' the reward is the probability: an ensemble's mean.
    """

    form = SINGLE
    certain = (0.0, 1.0)
    epochs = True
    model: ClassifierModel

    def make_model(self) -> ClassifierModel:
        return ClassifierModel(self.config, self.run.config.seed)

    def compute(self, params: Any, texts: np.ndarray) -> np.ndarray:
        members = self.model.probabilities(params, texts)
        return np.asarray(members.mean(axis=0), np.float32)

    def values(self, texts: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return self.lookup(texts).values

    def reward_of(self, raw: np.ndarray) -> np.ndarray:
        if self.config.value == "probability":
            return raw
        return np.asarray(raw > np.float32(self.config.classifier.threshold), np.float32)

    def questions(
        self, batch: BatchMessages, rows: np.ndarray
    ) -> tuple[list[tuple[str, ...]], list[int], Sequence[float] | None]:
        items, counts, _ = super().questions(batch, rows)
        if self.run.config.queue.order != "uncertain" or not items:
            return items, counts, None

        # The members' disagreement, or the nearness of a single network's probability to the
        # threshold.
        texts = batch.texts[self.stats.label[rows] == NO_LABEL]
        if self.config.training.members > 1:
            probabilities = self.model.probabilities(self.table.params, texts)
            return items, counts, probabilities.std(axis=0).tolist()
        distance = np.abs(self.table.lookup(texts).values - self.config.classifier.threshold)
        return items, counts, (-distance).tolist()
