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

    Of each item `lengths` int [N] tokens are used, at most `longest`. `group` consecutive steps have rows of one width. Rows of
    a batch have similar lengths, unless `by_length` is False: then all are padded to the longest.
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
        self.dataset, self.batch_size, self.lengths = dataset, batch_size, lengths
        sizes = range(1, longest + 1) if by_length else [longest]
        self.widths = list(dict.fromkeys(bucket(size, longest) for size in sizes))
        self._order = Buckets(lengths, self.widths, batch_size, seed, group)
        self.steps_per_pass = self._order.steps_per_pass

    def batch(self, items: np.ndarray, width: int) -> Any:
        """The items int64 [batch_size] of one step, -1 for an empty row, padded to `width`."""
        raise NotImplementedError

    def steps(self, items: Sequence[np.ndarray], width: int, first: int) -> Any:
        """The batches of these items, from step `first` on: leaves [steps, batch_size, ...]."""
        return stacked([self.batch(part, width) for part in items])

    def batches(self, first: int, count: int) -> Any:
        """The batches of steps `first` to `first + count`: leaves [count, batch_size, ...]."""
        rows = [self._order.rows(step) for step in range(first, first + count)]
        return self.steps([row.items for row in rows], max(row.width for row in rows), first)

    def first_of_each_width(self, chunk_steps: int) -> list[int]:
        """The first step of a chunk of each width that the first pass has: where each program is met."""
        first: dict[int, int] = {}
        for step in range(0, self.steps_per_pass, chunk_steps):
            first.setdefault(self._order.rows(step).width, step)
        return list(first.values())

    def whole(self, most: int) -> list[Any]:
        """All items, or a sample of every length, in at most `most` batches [batch_size, ...]; empty rows fill the last one."""
        found, size = [], self.batch_size
        order = np.argsort(self.lengths, kind="stable")
        order = order[np.linspace(0, len(order) - 1, min(len(order), most * size)).astype(np.int64)]
        filled = np.pad(order, (0, -len(order) % size), constant_values=-1)
        for number, items in enumerate(filled.reshape(-1, size)):
            longest = int(self.lengths[items[items >= 0]].max())
            width = next(width for width in self.widths if width >= longest)
            found.append(jax.tree.map(lambda leaf: leaf[0], self.steps([items], width, number)))
        return found


def stacked(batches: Sequence[Any]) -> Any:
    """Stacks batches of equal shapes along a leading axis of steps."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
