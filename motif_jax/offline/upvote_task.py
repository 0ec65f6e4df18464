"""A scorer of texts that learns which comments were liked, as a task of the offline trainer."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from motif_jax.algorithms import schedules
from motif_jax.datasets.tokens.dataset import TokensDataset
from motif_jax.datasets.tokens.order import Buckets, gather
from motif_jax.devices.parallel import AXIS, DataParallel
from motif_jax.language import dropout, training
from motif_jax.language.text_scorer import ScorerNetwork
from motif_jax.language.tokens import bucket
from motif_jax.language.training import LanguageTrainState, TokenSums
from motif_jax.offline.task import Evaluation, Task, TrainingPosition, diverged, drawn_by, shapes_of
from motif_jax.support import seeds
from motif_jax.support.run_folder import as_plain

COLUMN = "liked"


class Comments(NamedTuple):
    """Comments side by side: tokens int32 and valid bool [..., B, T], whether each was liked, and whether it is there, bool [..., B]."""

    tokens: Any
    valid: Any
    liked: Any
    there: Any


class CommentBatches:
    """The batches of a dataset of tokens with the column `liked`, those of about one length together.

    Args:
      dataset: of comments.
      batch_size: comments of a step.
      pad: token of the padding.
      seed: of the order.
      group: steps in a row that have rows of one width.
    """

    def __init__(self, dataset: TokensDataset, batch_size: int, pad: int, seed: int, group: int) -> None:
        self._dataset, self._size, self._pad = dataset, batch_size, pad
        longest = int(dataset.lengths.max())
        widths = list(dict.fromkeys(bucket(size, longest) for size in range(1, longest + 1)))
        self._order = Buckets(dataset.lengths, widths, batch_size, seed, group)
        self._liked = np.asarray(dataset.item_columns[COLUMN])
        self._longest = longest

    def batches(self, first: int, count: int) -> Comments:
        """Leaves [count, batch_size, ...]."""
        rows = [self._order.rows(step) for step in range(first, first + count)]
        width = max(row.width for row in rows)
        return jax.tree.map(lambda *leaves: np.stack(leaves), *[self._of(row.items, width) for row in rows])

    def _of(self, items: np.ndarray, width: int) -> Comments:
        there = items >= 0
        return Comments(*gather(self._dataset, items, width, self._pad), self._liked[items] & there, there)

    def whole(self, most: int) -> list[Comments]:
        """All comments, or some of every length, in at most `most` batches [batch_size, ...]."""
        order = np.argsort(self._dataset.lengths, kind="stable")
        order = order[np.linspace(0, len(order) - 1, min(len(order), most * self._size)).astype(np.int64)]
        found = []
        for start in range(0, len(order), self._size):
            items = np.full(self._size, -1, np.int64)
            part = order[start : start + self._size]
            items[: len(part)] = part
            found.append(self._of(items, bucket(int(self._dataset.lengths[part].max()), self._longest)))
        return found


def sums(network: ScorerNetwork, learned: Any, frozen: Any, batch: Any, key: Any) -> TokenSums:
    """Binary cross-entropy in nats of `Comments`, their number, and how many are classified correctly; a `training.SumsOf`."""
    parts = {**(frozen or {}), **learned}
    logits = network.logits(parts["model"], parts["heads"], batch.tokens, batch.valid, key)
    losses = optax.sigmoid_binary_cross_entropy(logits, batch.liked.astype(jnp.float32))
    there = batch.there.astype(jnp.float32)
    right = ((logits >= 0) == batch.liked).astype(jnp.float32)
    return TokenSums(jnp.sum(jnp.where(batch.there, losses, 0.0)), there.sum(), (right * there).sum())


class UpvoteTask(Task):
    """One training.

    Args:
      config: of the run.
      network: the scorer.
      learned, frozen: its parameters at the start (`model`, `heads`), host arrays.
      train, held_out: batches of comments.
      parallel: the devices.
      digests: of everything read.
    """

    title, unit, criterion = "train upvote model", "comments", "validation/loss"

    def __init__(
        self,
        config: ConfigDict,
        network: ScorerNetwork,
        learned: Any,
        frozen: Any,
        train: CommentBatches,
        held_out: CommentBatches,
        parallel: DataParallel,
        digests: Mapping[str, str],
    ) -> None:
        self.config, self.network, self.parallel = config, network, parallel
        self._learned, self._frozen, self._train = learned, frozen, train
        self.learned = shapes_of(learned)
        self.steps, self.steps_per_epoch = config.max_steps, config.evaluate_every
        self.digests = {**digests, **drawn_by(len(parallel.devices), config.dropout > 0)}
        self.chunk_steps = config.chunk_steps
        self.source = config.reddit.folder or "made-up comments"
        self.remedy = f"a smaller --config.optimizer.learning_rate (it is {config.optimizer.learning_rate:g})"
        self.optimizer = schedules.make_optimizer(config.optimizer, config.max_steps, schedules.matrices)
        self._schedule = schedules.make_schedule(config.optimizer, config.max_steps)
        key = dropout.key(seeds.derive(config.seed, "dropout") % 2**32)

        def key_of(step: jax.Array) -> jax.Array:
            return jax.random.fold_in(jax.random.fold_in(key, step), jax.lax.axis_index(AXIS))

        self._update = training.make_update(
            functools.partial(sums, network),
            self.optimizer,
            lambda tree: jax.lax.psum(tree, AXIS),
            key_of if config.dropout > 0 else None,
        )
        self._measure = parallel.wrap(
            lambda state, batch: jax.lax.psum(sums(network, state[0], state[1], batch, None), AXIS)
        )
        self._held_out = held_out.whole(config.evaluation_batches)

    def init_state(self) -> LanguageTrainState:
        learned, self._learned = self._learned, None
        return LanguageTrainState(learned, jax.device_get(jax.jit(self.optimizer.init)(learned)), np.int32(0))

    def shared(self) -> Any:
        """What is not learned."""
        return self._frozen or None

    def step(
        self, state: LanguageTrainState, shared: Any, batch: Comments
    ) -> tuple[LanguageTrainState, dict[str, jax.Array]]:
        return self._update(state, shared, batch)  # type: ignore[arg-type]

    def batches(self, first: int, count: int) -> Comments:
        """Leaves [count, micro-batches, comments, ...]."""
        parts, whole = self.config.accumulate, self._train.batches(first, count)
        return jax.tree.map(lambda leaf: leaf.reshape(count, parts, -1, *leaf.shape[2:]), whole)

    def batch_axes(self, batches: Comments) -> int:
        """That of the comments."""
        return 2

    def units(self, step: int) -> int:
        """Comments of `step` steps."""
        return step * self.config.batch_size

    def evaluate(self, state: LanguageTrainState, shared: Any, position: TrainingPosition) -> Evaluation:
        """Loss and accuracy on held-out comments.

        Raises:
          UserError: the loss is not finite.
        """
        total = np.zeros(len(TokenSums._fields))
        for batch in self._held_out:
            found = self._measure((state.params, shared), self.parallel.put_batch(batch, 0))
            total += np.asarray(jax.device_get(found), np.float64)
        loss, accuracy = total[0] / total[1], total[2] / total[1]
        if not math.isfinite(loss):
            raise diverged(
                f"the loss on held-out comments after step {position.step:,} not finite", self.remedy
            )
        row = {
            "validation/loss": loss,
            "validation/accuracy": accuracy,
            "train/loss": position.mean("loss"),
            "train/accuracy": position.mean("accuracy"),
            "train/gradient_norm": position.mean("gradient_norm"),
            "optimizer/learning_rate": position.learning_rate(self._schedule),
        }
        text = f"step {position.step:,}: loss {loss:.4f}, {accuracy:.1%} right (held-out comments)"
        return Evaluation(row, {"config": as_plain(self.config)}, text)
