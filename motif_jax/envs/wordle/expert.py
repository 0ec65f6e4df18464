"""The expert's criterion: a guess's information about the words that still fit."""

from __future__ import annotations

import numpy as np

from motif_jax.envs.wordle.colours import NUM_CODES

# Closer gains count as equal: they differ by the order of summation only.
TIE = 1e-9
_BLOCK = 1 << 22


def information_gain(table: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Expected entropy reduction over the fitting words, in nats, by guessing each of them: float64 [n].

    log n - sum over codes of (n_code / n) log n_code, for equally likely words (Snell et al. 2022, the optimal policy).

    Args:
      table: codes uint8 [words, words].
      members: int [n], the words that fit.
    """
    count = len(members)
    sizes = np.arange(1, count + 1)
    weights = np.concatenate([[0.0], sizes * np.log(sizes)])  # n log n
    gains = np.empty(count)
    everything = count == len(table)
    block = max(1, _BLOCK // max(count, NUM_CODES))
    for start in range(0, count, block):
        rows = members[start : start + block]
        codes = table[rows] if everything else table[rows[:, None], members]
        flat = codes + (np.arange(len(codes)) * NUM_CODES)[:, None]
        counts = np.bincount(flat.ravel(), minlength=len(codes) * NUM_CODES)
        gains[start : start + block] = np.log(count) - _lost(counts, weights, len(codes)) / count
    return gains


def _lost(counts: np.ndarray, weights: np.ndarray, rows: int) -> np.ndarray:
    """The sum of n log n over the codes of each row, float64 [rows]; codes with at most one word add nothing."""
    several = np.flatnonzero(counts > 1)
    return np.bincount(several // NUM_CODES, weights[counts[several]], rows)


def best_words(table: np.ndarray, members: np.ndarray) -> np.ndarray:
    """The fitting words with the most information, int [at least 1]."""
    gains = information_gain(table, members)
    return members[gains >= gains.max() - TIE]
