"""Batches of token rows: windows over all items, and items of similar length. The items of each
training step are a stateless function of seed and step.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.core import seeds
from motif_jax.lm.token_data import TokensDataset
from motif_jax.lm.tokens import bucket


class TokenWindows:
    """Windows of `length` tokens over all items, concatenated; each pass shuffles the windows and
    shifts their starts.

    A step at the end of a pass continues with the next pass. `per_pass` is 0 if the dataset is
    shorter than a window.
    """

    def __init__(self, num_tokens: int, length: int, batch_size: int, seed: int) -> None:
        self._length = length
        self._batch_size = batch_size
        self._seed = seed
        self.per_pass = num_tokens // length
        self._spare_tokens = num_tokens - self.per_pass * length
        # A step touches two passes at most.
        self._pass = functools.lru_cache(maxsize=2)(self._shuffle)

    def _shuffle(self, number: int) -> np.ndarray:
        """Indices of the first tokens of all windows of a pass, int64 [per_pass], in their
        order.
        """
        rng = seeds.rng(self._seed, "windows", number)
        order = rng.permutation(self.per_pass)
        shift = rng.integers(self._spare_tokens + 1)
        return order * self._length + shift

    def starts(self, step: int) -> np.ndarray:
        """Indices of the first tokens of a step's windows, int64 [batch_size]."""
        windows = np.arange(step * self._batch_size, (step + 1) * self._batch_size)
        # Windows are counted through all passes; each has its own order and shift.
        passes, index = np.divmod(windows, self.per_pass)
        starts = [self._pass(int(number))[index[passes == number]] for number in np.unique(passes)]
        return np.concatenate(starts)

    def gather(self, tokens: np.ndarray, step: int) -> np.ndarray:
        """The windows of a step, int32 [batch_size, length], of the tokens [N]."""
        return tokens[self.starts(step)[:, None] + np.arange(self._length)].astype(np.int32)


class ItemRows(NamedTuple):
    """The items of a step, int64 [batch_size], -1 for an empty row."""

    items: np.ndarray
    width: int


class Buckets:
    """Groups items of similar length: `group` successive steps have items of one bucket, padded to
    its width.

    Every pass redraws the batches and shuffles the groups. Items that do not fill a group move to
    the next wider bucket; the last group of the widest bucket has fewer items. If it has fewer
    items than steps, some occur twice in the pass. `lengths` are int [items], at most the widest of
    the ascending `widths`.
    """

    def __init__(
        self, lengths: np.ndarray, widths: Sequence[int], batch_size: int, seed: int, group: int
    ) -> None:
        self._batch_size = batch_size
        self._seed = seed
        self._group = group
        self._widths = np.asarray(widths)
        # The narrowest width that holds an item.
        self._bucket = np.searchsorted(self._widths, lengths)

        # Groups of each bucket, those with leftovers of narrower buckets included.
        self._groups: list[int] = []
        group_size = batch_size * group
        widest = int(self._bucket.max())
        leftovers = 0
        for number, count in enumerate(np.bincount(self._bucket)):
            available = int(count) + leftovers
            groups = available // group_size
            if number == widest:
                # No wider bucket could take its leftovers, so that the last group has empty rows.
                groups = math.ceil(available / group_size)
            self._groups.append(groups)
            leftovers = available - groups * group_size
        self.steps_per_pass = sum(self._groups) * group
        self._pass = functools.lru_cache(maxsize=2)(self._draw)

    def _draw(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Items int64 [groups, group, batch_size] of pass `number`, -1 for empty rows, and the
        width of each group.
        """
        rng = seeds.rng(self._seed, "buckets", number)
        group_size = self._batch_size * self._group
        leftovers = np.zeros(0, np.int64)
        batches = []
        widths = []
        for index, groups in enumerate(self._groups):
            shuffled = rng.permutation(np.flatnonzero(self._bucket == index))
            # Leftovers of narrower buckets come first, so that they do not move again.
            items = np.concatenate([leftovers, shuffled])
            leftovers = items[groups * group_size :]
            batches.append(self._spread(items[: groups * group_size], groups, rng))
            widths += [self._widths[index]] * groups
        order = rng.permutation(len(widths))
        return np.concatenate(batches)[order], np.asarray(widths)[order]

    def _spread(self, items: np.ndarray, groups: int, rng: np.random.Generator) -> np.ndarray:
        """`items` in batches int64 [groups, group, batch_size] whose sizes differ by at most one;
        none is empty.
        """
        steps = groups * self._group
        # In the widest bucket alone, whose width holds any item; the others fill their groups.
        if items.size < steps:
            items = np.concatenate([items, rng.choice(self._bucket.size, steps - items.size)])
        index = np.arange(items.size)
        batches = np.full((steps, self._batch_size), -1, np.int64)
        if steps:
            # Dealt out like cards, so that the empty rows are spread over the steps.
            batches[index % steps, index // steps] = items
        return batches.reshape(groups, self._group, self._batch_size)

    def rows(self, step: int) -> ItemRows:
        """The items of a step."""
        number, step_in_pass = divmod(step, self.steps_per_pass)
        items, widths = self._pass(number)
        group, step_in_group = divmod(step_in_pass, self._group)
        return ItemRows(items[group, step_in_group], int(widths[group]))


def gather(
    dataset: TokensDataset, items: np.ndarray, width: int, pad: int
) -> tuple[np.ndarray, np.ndarray]:
    """Items int64 [B] (-1: none) padded on the right: tokens int32 [B, width], and a mask bool
    [B, width], False for padding.
    """
    exists = items >= 0
    # An item of -1 reads the last offset, which does no harm.
    starts = np.where(exists, dataset.offsets[items], 0)
    lengths = np.where(exists, dataset.offsets[items + 1] - starts, 0)
    columns = np.arange(width)
    valid = columns < lengths[:, None]
    # Padding of the last items would lie past the end of the array.
    index = np.minimum(starts[:, None] + columns, dataset.num_tokens - 1)
    tokens = np.where(valid, dataset.tokens[index].astype(np.int32), np.int32(pad))
    return tokens, valid


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
