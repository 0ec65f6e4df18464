"""Kind 'classification': a classifier trained on the labels decides what is helpful
(ONI-classification).

Its loss (Zheng et al. 2024):

    L = mean over labels of  - sum_k q_k log softmax(z)_k

q is the target distribution over (no, yes): one-hot for a label, or the annotator's probability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from motif_jax.core import seeds
from motif_jax.core.training import ensembles
from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.core.verdicts import SINGLE, YES
from motif_jax.nets.classifier import MessageClassifier
from motif_jax.oni.config import LearnedReward
from motif_jax.oni.message_stats import NO_LABEL
from motif_jax.oni.network_reward import Examples, Model, NetworkReward, TrainingBatch
from motif_jax.oni.online_model import classifier_probabilities
from motif_jax.rl.intrinsic import BatchMessages

# A jax array; on the host a numpy array.
Field = Any


class LabelBatch(NamedTuple):
    """Labelled messages of one step.

    Attributes:
      messages: uint8 [B, 256].
      targets: float32 [B], the probability of yes.
      weights: float32 [B], 0 for padding.
    """

    messages: Field
    targets: Field
    weights: Field


def label_loss(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """-sum_k q_k log softmax(logits)_k float32 [...] of logits [..., 2] and the probability of yes,
    [...].
    """
    chex.assert_equal_shape_prefix([logits, targets], targets.ndim)
    # A softmax of two depends on their difference alone.
    difference = logits[..., 1] - logits[..., 0]
    return targets * jax.nn.softplus(-difference) + (1.0 - targets) * jax.nn.softplus(difference)


def _is_correct(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Whether logits [..., 2] choose the class of the targets [...]: bool [...]. Equal logits mean
    no, as with argmax.
    """
    return (logits[..., 1] > logits[..., 0]) == (targets > 0.5)


def make_loss(
    network: MessageClassifier, members: int, max_length: int | None
) -> Callable[[Any, LabelBatch, jax.Array | None], tuple[jax.Array, dict[str, jax.Array]]]:
    """Returns `loss(params, batch, key) -> (value, metrics)`; the value is summed over the members
    of an ensemble.

    Args of the factory:
      members: size of the ensemble; above 1 the leaves of `params` have an axis of members in
          front.
      max_length: bytes of all messages from here on are zero (static); None: all are read.

    Args of the loss:
      params: of `network`.
      batch: B labelled messages; see `LabelBatch`.
      key: of dropout; None leaves it off.

    Returns of the loss: float32 scalars. The value is in nats a label, each member's mean by the
    batch's weights. The metrics, means over members, are `loss` and `accuracy` (0 to 1) of the
    batch with dropout.
    """

    def member_loss(
        params: Any, batch: LabelBatch, key: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        logits = network.logits(params, batch.messages, max_length, key)
        # Padding has the weight 0 and does not count.
        weight = jnp.maximum(jnp.sum(batch.weights), 1e-12)
        loss = jnp.sum(label_loss(logits, batch.targets) * batch.weights) / weight
        accuracy = jnp.sum(_is_correct(logits, batch.targets) * batch.weights) / weight
        return loss, accuracy

    def loss(
        params: Any, batch: LabelBatch, key: jax.Array | None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        chex.assert_rank([batch.messages, batch.targets], [2, 1])
        chex.assert_equal_shape([batch.targets, batch.weights])
        if members == 1:
            value, accuracy = member_loss(params, batch, key)
        else:
            # Each member drops other units.
            keys = None if key is None else jax.random.split(key, members)
            axes = (0, None, None if key is None else 0)
            value, accuracy = jax.vmap(member_loss, in_axes=axes)(params, batch, keys)
        # The sum, so that each member's gradient is that of its own mean.
        return jnp.sum(value), {"loss": jnp.mean(value), "accuracy": jnp.mean(accuracy)}

    return loss


def make_train_step(
    network: MessageClassifier,
    optimizer: optax.GradientTransformation,
    members: int = 1,
    max_length: int | None = None,
) -> Callable[
    [EnsembleState, LabelBatch, jax.Array | None], tuple[EnsembleState, dict[str, jax.Array]]
]:
    """Returns `step(state, batch, key) -> (state, metrics)`, an optimiser step; see `make_loss`."""
    return ensembles.make_train_step(make_loss(network, members, max_length), optimizer, members)


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
        step = make_train_step(self.network, self.optimizer, self.members, length)
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
