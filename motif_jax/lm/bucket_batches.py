"""Batches of token rows of similar length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from motif_jax.lm.token_data.dataset import TokensDataset
from motif_jax.lm.token_data.order import Buckets
from motif_jax.lm.tokens import bucket


class BucketBatches:
    """Batches whose order depends on the seed alone; subclasses define `batch`, or `steps`.

    Of each item `lengths` int [N] tokens are used, at most `longest`. `group` consecutive steps
    have rows of one width. Rows of a batch have similar lengths, unless `by_length` is False: then
    all are padded to the longest.
    """

    def __init__(
        self,
        dataset: TokensDataset,
        lengths: np.ndarray,
        longest: int,
        batch_size: int,
        seed: int,
        group: int,
        by_length: bool = True,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.lengths = lengths
        possible_lengths = range(1, longest + 1) if by_length else [longest]
        # Ascending, and each once: neighbouring lengths have the same bucket.
        self.widths = list(dict.fromkeys(bucket(length, longest) for length in possible_lengths))
        self._order = Buckets(lengths, self.widths, batch_size, seed, group)
        self.steps_per_pass = self._order.steps_per_pass

    def batch(self, items: np.ndarray, width: int) -> Any:
        """The items int64 [batch_size] of one step, -1 for an empty row, padded to `width`."""
        raise NotImplementedError

    def steps(self, items: Sequence[np.ndarray], width: int, first: int) -> Any:
        """The batches of these items, from step `first` on: leaves [steps, batch_size, ...]."""
        return stacked([self.batch(step_items, width) for step_items in items])

    def batches(self, first: int, count: int) -> Any:
        """The batches of steps `first` to `first + count`: leaves [count, batch_size, ...]."""
        # Steps of a chunk may be of two groups; the wider one's width serves both.
        rows = [self._order.rows(step) for step in range(first, first + count)]
        return self.steps([row.items for row in rows], max(row.width for row in rows), first)

    def first_of_each_width(self, chunk_steps: int) -> list[int]:
        """The first step of a chunk of each width that the first pass has: where each program is
        met.
        """
        first_steps: dict[int, int] = {}
        for step in range(0, self.steps_per_pass, chunk_steps):
            first_steps.setdefault(self._order.rows(step).width, step)
        return list(first_steps.values())

    def all_batches(self, max_batches: int) -> list[Any]:
        """All items, or a sample of every length, in at most `max_batches` batches
        [batch_size, ...]; empty rows fill the last one.
        """
        size = self.batch_size
        # By length, so that each batch is padded to little more than its items.
        items = np.argsort(self.lengths, kind="stable")
        count = min(len(items), max_batches * size)
        # Evenly over the sorted lengths: a sample of the short and of the long.
        items = items[np.linspace(0, len(items) - 1, count).astype(np.int64)]
        items = np.pad(items, (0, -len(items) % size), constant_values=-1)

        batches = []
        for number, batch_items in enumerate(items.reshape(-1, size)):
            longest = int(self.lengths[batch_items[batch_items >= 0]].max())
            width = next(width for width in self.widths if width >= longest)
            steps = self.steps([batch_items], width, number)
            batches.append(jax.tree.map(lambda leaf: leaf[0], steps))
        return batches


def stacked(batches: Sequence[Any]) -> Any:
    """Stacks batches of equal shapes along a leading axis of steps."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
