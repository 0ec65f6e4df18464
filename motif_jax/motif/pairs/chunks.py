"""Chunk files: the sub-sequences that the collect stage drew from one episode.

A file's name has the episode's index and the number of sub-sequences (`00000012-000345.npz`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from motif_jax.core.files import atomic_write_bytes

_NAME = re.compile(r"(\d{8})-(\d{6,})\.npz")


def draw_starts(
    steps: int,
    length: int,
    share: float,
    rng: np.random.Generator,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Draws the first steps of an episode's sub-sequences.

    As published, floor(steps / length) distinct starts are drawn uniformly (length 1: every step).
    `share` keeps a part of them, so that more episodes fill a dataset of the same size.

    Args:
      share: in (0, 1]; 1 as published.
      weights: float [steps - length + 1], relative probability of each start; None draws uniformly,
          as published.

    Returns:
      int64 [starts], ascending; at least one unless the episode is shorter than a sub-sequence.
    """
    if steps < length:
        return np.zeros(0, np.int64)
    count = max(1, int(share * (steps // length)))
    # `choice` wants probabilities that sum to 1.
    probabilities = None if weights is None else weights / weights.sum()
    starts = rng.choice(steps - length + 1, size=count, replace=False, p=probabilities)
    return np.sort(starts)


def evenly(messages: np.ndarray, length: int) -> np.ndarray:
    """Weights float64 [steps - length + 1] of starts that make each distinct first message equally
    likely.

    `messages` are uint8 [steps, bytes]; the weights are [0] if the episode is shorter than a
    sub-sequence.
    """
    first_messages = messages[: max(0, len(messages) - length + 1)]
    _, inverse, counts = np.unique(first_messages, axis=0, return_inverse=True, return_counts=True)
    # numpy 2.0 alone returns the inverse with two axes.
    return 1.0 / counts[inverse.reshape(-1)]


def gather(
    history: Mapping[str, np.ndarray], starts: np.ndarray, length: int
) -> dict[str, np.ndarray]:
    """Cuts sub-sequences out of an episode: [steps, ...] -> [starts, length, ...] for every
    array.
    """
    index = starts[:, None] + np.arange(length)
    return {name: array[index] for name, array in history.items()}


def save(folder: str | Path, episode: int, count: int, arrays: Mapping[str, np.ndarray]) -> Path:
    """Writes the chunk of `episode` with `count` sub-sequences atomically."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    path = Path(folder) / f"{episode:08d}-{count:06d}.npz"
    atomic_write_bytes(path, buffer.getvalue())
    return path


def scan(folder: str | Path) -> dict[int, int]:
    """Episode -> number of sub-sequences, for each chunk in `folder`."""
    matches = (_NAME.fullmatch(path.name) for path in Path(folder).glob("*.npz"))
    return {int(match[1]): int(match[2]) for match in matches if match}


def load(folder: str | Path, episode: int, count: int) -> dict[str, np.ndarray]:
    """Reads the arrays of a chunk."""
    path = Path(folder) / f"{episode:08d}-{count:06d}.npz"
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def load_array_of(folder: str | Path, episode: int, count: int, name: str) -> np.ndarray:
    """Reads one array of a chunk, and not the others."""
    path = Path(folder) / f"{episode:08d}-{count:06d}.npz"
    with np.load(path, allow_pickle=False) as file:
        return file[name]
