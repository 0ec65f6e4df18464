"""The classifier of an online reward: whether a message is helpful (Zheng et al. 2024, ONI-classification).

It has the reward network's message encoder, two linear layers of 512 with ReLU, dropout, and two logits. All layers have
PyTorch's default initialisation. Golden numbers: oni_classifier.npz.
"""

from __future__ import annotations

import math
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.networks.layers import Dense
from motif_jax.networks.message import SHAPES, MessageEncoder

HIDDEN = 512
DROPOUT = 0.1


class ClassifierModule(nn.Module):
    """Flax module of `MessageClassifier`."""

    message: str = "lt_cnn"
    dropout: float = DROPOUT

    @nn.compact
    def __call__(
        self, messages: jax.Array, max_length: int | None = None, training: bool = False
    ) -> tuple[jax.Array, jax.Array]:
        """Returns (features [N, F] of the encoder, logits [N, 2])."""
        features = MessageEncoder(SHAPES[self.message], orthogonal=False, name="message")(
            messages, max_length
        )
        x = features
        for name, units in (("classifier_fc1", HIDDEN), ("classifier_fc2", HIDDEN)):
            x = nn.relu(Dense(units, limit=1.0 / math.sqrt(x.shape[-1]), name=name)(x))
        x = nn.Dropout(self.dropout, deterministic=not training)(x)
        return features, Dense(2, limit=1.0 / math.sqrt(x.shape[-1]), name="classifier_head")(x)


class MessageClassifier:
    """The classifier as pure functions.

    Args:
      message: name of the encoder in `networks.message.SHAPES`.
      dropout: probability of dropout before the head in training.
    """

    def __init__(self, message: str = "lt_cnn", dropout: float = DROPOUT) -> None:
        self.message, self.dropout = message, dropout
        self.module = ClassifierModule(message, dropout)

    def init(self, key: jax.Array) -> Any:
        return self.module.init(key, jnp.zeros((1, 256), jnp.uint8))["params"]

    def logits(
        self,
        params: Any,
        messages: jax.Array,
        max_length: int | None = None,
        dropout_key: jax.Array | None = None,
    ) -> jax.Array:
        """Logits (no, yes), float32 [N, 2].

        Args:
          messages: uint8 [N, 256].
          max_length: bytes from this one on are zero in all messages (static; None: 256).
          dropout_key: key for training; None turns dropout off.
        """
        chex.assert_rank(messages, 2)
        rngs = None if dropout_key is None else {"dropout": dropout_key}
        training = rngs is not None
        outputs: Any = self.module.apply({"params": params}, messages, max_length, training, rngs=rngs)
        return outputs[1]

    def probability(self, params: Any, messages: jax.Array, max_length: int | None = None) -> jax.Array:
        return jax.nn.softmax(self.logits(params, messages, max_length), axis=-1)[:, 1]
