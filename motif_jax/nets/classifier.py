"""The classifier of an online reward: whether a message is helpful (Zheng et al. 2024,
ONI-classification).

It has the reward network's message encoder, two linear layers of 512 with ReLU, dropout, and two
logits. All layers have PyTorch's default initialisation. Golden numbers: oni_classifier.npz.
"""

from __future__ import annotations

import math
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.nets.layers import Dense
from motif_jax.nets.message import SHAPES, MessageEncoder

HIDDEN = 512
DROPOUT = 0.1


class ClassifierModule(nn.Module):
    """Flax module of `MessageClassifier`."""

    message: str = "lt_cnn"
    dropout: float = DROPOUT

    @nn.compact
    def __call__(
        self, messages: jax.Array, max_length: int | None = None, training: bool = False
    ) -> jax.Array:
        x = MessageEncoder(SHAPES[self.message], orthogonal=False, name="message")(
            messages, max_length
        )
        for name in ("classifier_fc1", "classifier_fc2"):
            x = nn.relu(Dense(HIDDEN, limit=1.0 / math.sqrt(x.shape[-1]), name=name)(x))
        x = nn.Dropout(self.dropout, deterministic=not training)(x)
        return Dense(2, limit=1.0 / math.sqrt(x.shape[-1]), name="classifier_head")(x)


class MessageClassifier:
    """The classifier as pure functions, with an encoder of `nets.message.SHAPES`, and dropout
    before the head in training.
    """

    def __init__(self, message: str = "lt_cnn", dropout: float = DROPOUT) -> None:
        self.message = message
        self.module = ClassifierModule(message, dropout)

    def init(self, key: jax.Array) -> Any:
        """New parameters, a tree of float32 arrays."""
        return self.module.init(key, jnp.zeros((1, 256), jnp.uint8))["params"]

    def logits(
        self,
        params: Any,
        messages: jax.Array,
        max_length: int | None = None,
        dropout_key: jax.Array | None = None,
    ) -> jax.Array:
        """Logits (no, yes), float32 [N, 2], of messages uint8 [N, 256]; a key turns dropout on.

        `max_length`: bytes from this one on are zero in all messages (static; None: 256).
        """
        chex.assert_rank(messages, 2)
        rngs = None if dropout_key is None else {"dropout": dropout_key}
        training = dropout_key is not None
        return self.module.apply({"params": params}, messages, max_length, training, rngs=rngs)  # type: ignore[return-value]

    def probability(
        self, params: Any, messages: jax.Array, max_length: int | None = None
    ) -> jax.Array:
        """Probability of "yes", float32 [N], of messages uint8 [N, 256]; `max_length` as in
        `logits`.
        """
        return jax.nn.softmax(self.logits(params, messages, max_length), axis=-1)[:, 1]
