"""Predicts whether texts are liked: a RoBERTa with a pooler and a head on its first state (Snell et
al. 2022, the upvote model).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json
from motif_jax.lm import folder as folders
from motif_jax.lm import weights
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.heads import HeadConfig, Heads
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.tokens import Tokenizer, bucket, padded

# Name of the head.
LIKED = "liked"
# The file that a training writes beside the model, and its key for the longest text.
DESCRIPTION, LONGEST = "training.json", "max_len"
_BATCH = 64  # texts


def heads_of(config: ModelConfig) -> Heads:
    """The pooler, d to 2d with ReLU, and one number."""
    return Heads(
        config.width, {LIKED: HeadConfig(1, (config.width, 2 * config.width), ("tanh", "relu"))}
    )


@dataclasses.dataclass(frozen=True)
class ScorerNetwork:
    """Maps the tokens of each text to a logit, by a RoBERTa."""

    model: LanguageModel

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        """Fresh parameters of the model and of the head, float32."""
        trunk, head = jax.random.split(key)
        return self.model.init(trunk), heads_of(self.model.config).init(head)

    def logits(
        self,
        params: Any,
        heads: Any,
        tokens: jax.Array,
        valid: jax.Array,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Logits float32 [B] that texts int32 [B, T], with special tokens and padded on the right,
        are liked; a key turns dropout on.
        """
        model = self.model if key is None else self.model.with_dropout(key)
        states, _ = model.prefill(params, tokens, valid)
        # The state of the first token, <s>, as RoBERTa's classifiers read it.
        return heads_of(model.config).apply(heads, LIKED, states.after[:, 0])


def with_pooler(heads: Any, folder: str | Path) -> Any:
    """Copies a checkpoint's pooler, if it has one, into the first layer of the heads."""
    pooler = weights.load_pooler(folder)
    return heads if pooler is None else {LIKED: {**heads[LIKED], "hidden_0": pooler}}


class TextScorer:
    """A trained network and its tokenizer, from a folder that `train_upvote` wrote; UserError where
    it has no scorer.
    """

    def __init__(self, folder: str | Path) -> None:
        scorer = folders.read(folder)
        if scorer.config.architecture != "roberta" or set(scorer.head_params) != {LIKED}:
            raise UserError(f"{folder}: must be a folder that train_upvote or import:ilql writes")
        self._tokenizer = Tokenizer.read(folder, scorer.config.vocab_size)
        self._longest = longest_text(Path(folder), scorer.config.max_length)
        network = ScorerNetwork(LanguageModel(scorer.config))
        self._params = jax.device_put((scorer.params, scorer.head_params))

        @jax.jit
        def score(params: Any, tokens: jax.Array, valid: jax.Array) -> jax.Array:
            trunk_params, head_params = params
            return jax.nn.sigmoid(network.logits(trunk_params, head_params, tokens, valid))

        self._score = score

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """Probabilities in [0, 1]; long texts are cut to the training's longest."""
        rows = encoded(self._tokenizer, texts, self._longest)
        probabilities = np.zeros(len(rows), np.float32)
        # By length, so that a batch is padded to little more than its texts.
        order = np.argsort([len(row) for row in rows], kind="stable")
        for start in range(0, len(rows), _BATCH):
            indices = order[start : start + _BATCH]
            # Each batch is full, so that there is one program for each length.
            batch = [rows[index] for index in indices] + [[0]] * (_BATCH - len(indices))
            tokens, valid = padded(batch, bucket(max(map(len, batch)), self._longest))
            of_batch = self._score(self._params, jnp.asarray(tokens), jnp.asarray(valid))
            probabilities[indices] = np.asarray(of_batch)[: len(indices)]
        return [float(value) for value in probabilities]


def longest_text(folder: Path, room: int | None) -> int | None:
    """The tokens of a text in the training at most; the model's `room` where the folder has no
    number (imports).
    """
    path = folder / DESCRIPTION
    description = (
        read_json(path, "restore a copy of it, or train it again") if path.exists() else {}
    )
    longest: int | None = description.get(LONGEST, room)
    return longest


def encoded(tokenizer: Tokenizer, texts: Sequence[str], longest: int | None) -> list[list[int]]:
    """Tokens of texts with special tokens; a text that is cut keeps the end token."""
    rows = tokenizer.encode(texts)
    if longest is None:
        return rows
    return [row if len(row) <= longest else [*row[: longest - 1], row[-1]] for row in rows]
