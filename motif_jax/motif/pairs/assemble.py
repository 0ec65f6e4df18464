"""Joins the chunks of a collection: draws pairs of sub-sequences and fills the final arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from motif_jax.motif.pairs.writer import PairsWriter

# A chunk's array with equal keys for rows with equal captions; it is not part of the dataset.
CAPTION_KEY = "caption_key"


def enough_episodes(counts: Callable[[int], int | None], rows: int) -> int | None:
    """The smallest number of episodes 0, 1, ... that together hold at least `rows` sub-sequences.

    None if an earlier episode is missing. `counts` maps an episode to its number of sub-sequences,
    None before it is played.
    """
    total = 0
    episode = 0
    while total < rows:
        count = counts(episode)
        if count is None:
            return None
        total += count
        episode += 1
    return episode


def draw_pairs(
    rows: int, num_pairs: int, rng: np.random.Generator, caption_keys: np.ndarray | None = None
) -> tuple[np.ndarray, int]:
    """Shuffles sub-sequences 0 to `rows` - 1 and pairs neighbours.

    Returns the pairs, int64 [at most num_pairs, 2], and how many of all are usable: those whose
    `caption_keys` [rows] differ, or all without keys.
    """
    # An odd row at the end is in no pair.
    pairs = rng.permutation(rows)[: rows // 2 * 2].reshape(-1, 2)
    if caption_keys is not None:
        keys = caption_keys[pairs]
        pairs = pairs[keys[:, 0] != keys[:, 1]]
    return pairs[:num_pairs], len(pairs)


def more_rows(rows: int, num_pairs: int, num_usable: int) -> int:
    """The total number of sub-sequences to collect, after `rows` of them gave only `num_usable`
    usable pairs.
    """
    if num_usable == 0:
        return 4 * rows
    # A twentieth more than the share so far promises, so that the next shuffle is likely enough.
    return max(rows + 2, math.ceil(1.05 * rows * num_pairs / num_usable))


class UsableShare:
    """Estimates the share of random pairs of sub-sequences that have two different captions.

    Without it a progress line would count pairs that are dropped later, half of them in NetHack.
    """

    def __init__(self) -> None:
        self._rows = 0
        # Ordered pairs of different rows with one caption.
        self._equal_pairs = 0
        # A caption's key -> the number of rows with it.
        self._times: dict[int, int] = {}

    def add(self, caption_keys: np.ndarray) -> None:
        """Counts the sub-sequences of an episode by their `caption_keys`, integers [rows]."""
        for key, count in zip(*np.unique(caption_keys, return_counts=True), strict=True):
            before = self._times.get(int(key), 0)
            after = before + int(count)
            self._equal_pairs += after * (after - 1) - before * (before - 1)
            self._times[int(key)] = after
        self._rows += len(caption_keys)

    @property
    def value(self) -> float:
        """The share, 1 before there are two sub-sequences."""
        pairs = self._rows * (self._rows - 1)
        return 1 - self._equal_pairs / pairs if pairs else 1.0


def pairs_done(drawn: int, rows: int, num_pairs: int, share: float) -> int:
    """How many of `num_pairs` pairs `drawn` sub-sequences are worth, so that they grow evenly to
    the end.

    `rows` sub-sequences are drawn before they are paired. Where the `share` of usable pairs among
    them will be too small, those that `more_rows` will add count as needed from the start.
    """
    usable = int(rows / 2 * share)
    needed = rows if usable >= num_pairs else more_rows(rows, num_pairs, usable)
    return int(min(1.0, drawn / needed) * num_pairs)


def fill(
    writer: PairsWriter,
    pairs: np.ndarray,
    counts: Sequence[int],
    load: Callable[[int], Mapping[str, np.ndarray]],
) -> Iterator[int]:
    """Copies the chunks of episodes 0, 1, ... into the arrays of `writer`; yields each episode when
    done.

    `pairs` are int64 [pairs, 2], row numbers over all episodes in order. `load` gives an episode's
    arrays [rows of the episode, ...] by dataset name ('data/NAME', 'info/NAME').
    """
    offsets = np.concatenate([[0], np.cumsum(counts)])
    # Row number -> its position in the final arrays, -1 for rows of no pair.
    positions = np.full(offsets[-1], -1, np.int64)
    positions[pairs.reshape(-1)] = np.arange(pairs.size)

    arrays: dict[str, np.ndarray] = {}
    for episode, count in enumerate(counts):
        episode_positions = positions[offsets[episode] : offsets[episode] + count]
        used = np.flatnonzero(episode_positions >= 0)
        chunk = load(episode) if count else {}
        for name, array in chunk.items():
            # Names without a folder are the chunk's own, such as the caption keys.
            if "/" not in name:
                continue
            if name not in arrays:
                # A view [2 * pairs, ...]: row 2 * i is the first side of pair i, the next one its
                # second.
                created = writer.create(name, array.shape[1:], array.dtype)
                arrays[name] = created.reshape(pairs.size, *array.shape[1:])
            arrays[name][episode_positions[used]] = array[used]
        yield episode
