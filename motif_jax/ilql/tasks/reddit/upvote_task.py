"""Training of a text scorer on liked comments, as a task of the offline trainer."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax

from motif_jax.core.training.gradient_sums import Sums, TrainState
from motif_jax.core.training.task import Evaluation, TrainingPosition
from motif_jax.ilql.tasks.reddit.config import UpvoteConfig
from motif_jax.ilql.tasks.reddit.text_scorer import ScorerNetwork
from motif_jax.lm.sums_task import SumsTask
from motif_jax.lm.token_batches import BucketBatches, gather
from motif_jax.lm.token_data import TokensDataset

COLUMN = "liked"


class Comments(NamedTuple):
    """A batch of comments: `tokens` int32 and `valid` bool [..., B, T], `liked` bool [..., B],
    `exists` bool [..., B], False in empty rows.
    """

    tokens: Any
    valid: Any
    liked: Any
    exists: Any


class CommentBatches(BucketBatches):
    """Batches of `Comments`, of a dataset of tokens with the column `liked`; `pad` is the token of
    the padding.
    """

    def __init__(
        self, dataset: TokensDataset, batch_size: int, pad: int, seed: int, group: int
    ) -> None:
        super().__init__(
            dataset, dataset.lengths, int(dataset.lengths.max()), batch_size, seed, group
        )
        self._pad = pad
        self._liked = np.asarray(dataset.item_columns[COLUMN])

    def batch(self, items: np.ndarray, width: int) -> Comments:
        exists = items >= 0
        tokens, valid = gather(self.dataset, items, width, self._pad)
        # An empty row has the index -1, which reads the last comment.
        return Comments(tokens, valid, self._liked[items] & exists, exists)


def sums(network: ScorerNetwork, learned: Any, frozen: Any, batch: Any, key: Any) -> Sums:
    """Binary cross-entropy in nats of `Comments`, their number, and the number classified
    correctly; a `gradient_sums.SumsOf`.
    """
    parts = {**(frozen or {}), **learned}
    logits = network.logits(parts["model"], parts["heads"], batch.tokens, batch.valid, key)
    losses = optax.sigmoid_binary_cross_entropy(logits, batch.liked.astype(jnp.float32))
    weights = batch.exists.astype(jnp.float32)
    # A logit of 0 is a probability of one half.
    is_right = ((logits >= 0) == batch.liked).astype(jnp.float32)
    return Sums(
        jnp.sum(jnp.where(batch.exists, losses, 0.0)), weights.sum(), (is_right * weights).sum()
    )


class UpvoteTask(SumsTask):
    """A training whose loss is `sums`."""

    config: UpvoteConfig
    title, unit = "train upvote model", "comments"

    def evaluate(self, state: TrainState, shared: Any, position: TrainingPosition) -> Evaluation:
        means = self.held_out(state, shared, position)
        row = {
            "validation/loss": means.loss,
            "validation/accuracy": means.accuracy,
            "train/loss": position.mean("loss"),
            "train/accuracy": position.mean("accuracy"),
        }
        text = f"loss {means.loss:.4f}, {means.accuracy:.1%} right (held-out comments)"
        return self.evaluation(row, text, position)
