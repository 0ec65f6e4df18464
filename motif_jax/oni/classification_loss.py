"""Learning to classify messages from labels: the loss and the training step of one device (Zheng et
al. 2024, ONI).

    L = mean over labels of  - sum_k q_k log softmax(z)_k

q is the target distribution over (no, yes): one-hot for a label, or the annotator's probability.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from motif_jax.core.training import ensembles
from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.nets.classifier import MessageClassifier

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


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """-sum_k q_k log softmax(logits)_k float32 [...] of logits [..., 2] and the probability of yes,
    [...].
    """
    chex.assert_equal_shape_prefix([logits, targets], targets.ndim)
    # A softmax of two depends on their difference alone.
    difference = logits[..., 1] - logits[..., 0]
    return targets * jax.nn.softplus(-difference) + (1.0 - targets) * jax.nn.softplus(difference)


def correct(logits: jax.Array, targets: jax.Array) -> jax.Array:
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
        loss = jnp.sum(cross_entropy(logits, batch.targets) * batch.weights) / weight
        accuracy = jnp.sum(correct(logits, batch.targets) * batch.weights) / weight
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
