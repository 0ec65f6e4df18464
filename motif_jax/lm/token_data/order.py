"""Selects the items of each training step, as a stateless function of seed and step."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from motif_jax.core import seeds
from motif_jax.lm.token_data.dataset import TokensDataset


class TokenWindows:
    """Windows of `length` tokens over all items, concatenated; each pass shuffles the windows and shifts their starts.

    A step at the end of a pass continues with the next pass. `per_pass` is 0 if the dataset is shorter than a window.
    """

    def __init__(self, num_tokens: int, length: int, batch_size: int, seed: int) -> None:
        self._length, self._batch_size, self._seed = length, batch_size, seed
        self.per_pass = num_tokens // length
        self._slack = num_tokens - self.per_pass * length
        self._pass = functools.lru_cache(maxsize=2)(self._shuffled)

    def _shuffled(self, number: int) -> np.ndarray:
        rng = seeds.rng(self._seed, "windows", number)
        return rng.permutation(self.per_pass) * self._length + rng.integers(self._slack + 1)

    def starts(self, step: int) -> np.ndarray:
        """Indices of the first tokens of a step's windows, int64 [batch_size]."""
        places = np.arange(step * self._batch_size, (step + 1) * self._batch_size)
        numbers, inside = np.divmod(places, self.per_pass)
        parts = [self._pass(int(number))[inside[numbers == number]] for number in np.unique(numbers)]
        return np.concatenate(parts)

    def gather(self, tokens: np.ndarray, step: int) -> np.ndarray:
        """The windows of a step, int32 [batch_size, length], of the tokens [N]."""
        return tokens[self.starts(step)[:, None] + np.arange(self._length)].astype(np.int32)


class ItemRows(NamedTuple):
    """The items of a step, int64 [batch_size], -1 for an empty row."""

    items: np.ndarray
    width: int


class Buckets:
    """Groups items of similar length: `group` successive steps have items of one bucket, padded to its width.

    Every pass redraws the batches and shuffles the groups. Items that do not fill a group move to the next wider bucket; the
    last group of the widest bucket has fewer items. If it has fewer items than steps, some occur twice in the pass.
    `lengths` are int [items], at most the widest of the ascending `widths`.
    """

    def __init__(
        self, lengths: np.ndarray, widths: Sequence[int], batch_size: int, seed: int, group: int
    ) -> None:
        self._batch_size, self._seed, self._group = batch_size, seed, group
        self._widths = np.asarray(widths)
        self._bucket = np.searchsorted(self._widths, lengths)
        size, last = batch_size * group, int(self._bucket.max())
        self._groups, rest = [], 0
        for place, count in enumerate(np.bincount(self._bucket)):
            whole = -(-(count + rest) // size) if place == last else (count + rest) // size
            self._groups.append(int(whole))
            rest = count + rest - whole * size
        self.steps_per_pass = sum(self._groups) * group
        self._pass = functools.lru_cache(maxsize=2)(self._drawn)

    def _drawn(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Items int64 [groups, group, batch_size] of pass `number`, -1 for empty rows, and the width of each group."""
        rng, size = seeds.rng(self._seed, "buckets", number), self._batch_size * self._group
        rest, found, widths = np.zeros(0, np.int64), [], []
        for place, groups in enumerate(self._groups):
            here = np.concatenate([rest, rng.permutation(np.flatnonzero(self._bucket == place))])
            # Leftovers of narrower buckets come first, so that they do not move again.
            taken, rest = here[: groups * size], here[groups * size :]
            found.append(self._spread(taken, groups, rng))
            widths += [self._widths[place]] * groups
        order = rng.permutation(len(widths))
        return np.concatenate(found)[order], np.asarray(widths)[order]

    def _spread(self, items: np.ndarray, groups: int, rng: np.random.Generator) -> np.ndarray:
        """`items` in batches int64 [groups, group, batch_size] whose sizes differ by at most one; none is empty."""
        steps = groups * self._group
        if items.size < steps:
            items = np.concatenate([items, rng.choice(self._bucket.size, steps - items.size)])
        places = np.arange(items.size)
        batches = np.full((steps, self._batch_size), -1, np.int64)
        if steps:
            batches[places % steps, places // steps] = items
        return batches.reshape(groups, self._group, self._batch_size)

    def rows(self, step: int) -> ItemRows:
        number, inside = divmod(step, self.steps_per_pass)
        items, widths = self._pass(number)
        group, place = divmod(inside, self._group)
        return ItemRows(items[group, place], int(widths[group]))


def gather(dataset: TokensDataset, items: np.ndarray, width: int, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Items int64 [B] (-1: none) padded on the right: tokens int32 [B, width], and a mask bool [B, width], False for padding."""
    there = items >= 0
    starts = np.where(there, dataset.offsets[items], 0)
    lengths = np.where(there, dataset.offsets[items + 1] - starts, 0)
    inside = np.arange(width)
    valid = inside < lengths[:, None]
    places = np.minimum(starts[:, None] + inside, dataset.num_tokens - 1)
    return np.where(valid, dataset.tokens[places].astype(np.int32), np.int32(pad)), valid
