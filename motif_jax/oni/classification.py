"""Kind 'classification': a classifier trained on the labels decides what is helpful (ONI-classification)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax

from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.core.verdicts import SINGLE
from motif_jax.nets.classifier import MessageClassifier
from motif_jax.oni import classification_loss as classification
from motif_jax.oni.classification_loss import LabelBatch
from motif_jax.oni.config import LearnedReward
from motif_jax.oni.label_set import Examples
from motif_jax.oni.network_reward import NetworkReward
from motif_jax.oni.online_model import cautious, classifier_probabilities
from motif_jax.oni.reward_trainer import Model, TrainingBatch
from motif_jax.rl.intrinsic import BatchMessages


class ClassifierModel(Model):
    """Whether a text is helpful."""

    def __init__(self, config: LearnedReward, seed: int) -> None:
        network = MessageClassifier(config.encoder, config.classifier.dropout)
        optimizer = optax.adam(config.training.learning_rate, eps=1e-8)
        super().__init__(network, optimizer, config.training.members)
        self._key = np.asarray(jax.random.key_data(jax.random.key(seed)))
        self._step = jax.jit(self._numbered_step, static_argnames="length")

    def step(
        self, state: EnsembleState, batch: TrainingBatch, step: int
    ) -> tuple[EnsembleState, dict[str, jax.Array]]:
        examples = LabelBatch(batch.messages[:, 0], batch.targets, batch.weights)
        return self._step(state, examples, self._key, np.int32(step), length=batch.length)

    def _numbered_step(
        self, state: EnsembleState, batch: LabelBatch, key: jax.Array, number: jax.Array, length: int | None
    ) -> tuple[EnsembleState, dict[str, jax.Array]]:
        step = classification.make_train_step(self.network, self.optimizer, self.members, length)
        return step(state, batch, jax.random.fold_in(jax.random.wrap_key_data(key), number))

    def probabilities(self, params: Any, texts: np.ndarray) -> np.ndarray:
        """Probabilities of yes float32 [members, N] of texts uint8 [N, L]."""
        return classifier_probabilities(self.network.message, self.members, params, texts)

    def right(self, params: Any, examples: Examples, chosen: np.ndarray) -> tuple[int, int]:
        yes = self.probabilities(params, examples.messages[examples.places[chosen, 0]]).mean(axis=0) > 0.5
        return int((yes == (examples.labels[chosen] == 1)).sum()), len(chosen)


class ClassificationReward(NetworkReward):
    """1 where the probability of yes is strictly above `config.classifier.threshold`, else 0; so are labelled texts.

    With `config.value` 'probability' it is the probability: an ensemble's mean less `config.training.deviations` deviations.
    """

    form = SINGLE
    certain = (0.0, 1.0)
    epochs = True
    model: ClassifierModel

    def make_model(self) -> ClassifierModel:
        return ClassifierModel(self.config, self.run.config.seed)

    def compute(self, params: Any, texts: np.ndarray) -> np.ndarray:
        return cautious(self.model.probabilities(params, texts), self.config.training.deviations)

    def values(self, texts: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return self.lookup(texts).values

    def shown(self, raw: np.ndarray) -> np.ndarray:
        if self.config.value == "probability":
            return raw
        return np.asarray(raw > np.float32(self.config.classifier.threshold), np.float32)

    def questions(
        self, batch: BatchMessages, rows: np.ndarray
    ) -> tuple[list[tuple[str, ...]], list[int], Sequence[float] | None]:
        items, counts, _ = super().questions(batch, rows)
        if self.run.config.queue.order != "uncertain" or not items:
            return items, counts, None
        texts = batch.texts[self.stats.label[rows] < 0]
        if self.config.training.members > 1:
            return items, counts, self.model.probabilities(self.table.params, texts).std(axis=0).tolist()
        far = np.abs(self.table.lookup(texts).values - self.config.classifier.threshold)
        return items, counts, (-far).tolist()
