"""The expert's criterion: a guess's information about the words that still fit."""

from __future__ import annotations

import numpy as np

from motif_jax.ilql.tasks.wordle.colours import NUM_CODES

# Closer gains count as equal: they differ by the order of summation only.
TIE = 1e-9
_BLOCK = 1 << 22


def information_gain(table: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Expected entropy reduction over the fitting words `members` int [n], in nats, by guessing
    each: float64 [n].

    log n - sum over codes of (n_code / n) log n_code, for equally likely words (Snell et al. 2022,
    the optimal policy), by `table`, codes uint8 [words, words].
    """
    count = len(members)
    sizes = np.arange(1, count + 1)
    weights = np.concatenate([[0.0], sizes * np.log(sizes)])  # n log n
    gains = np.empty(count)
    block = max(1, _BLOCK // max(count, NUM_CODES))
    for start in range(0, count, block):
        rows = members[start : start + block]
        # At the first guess all words fit, and no columns have to be picked.
        codes = table[rows] if count == len(table) else table[rows[:, None], members]
        # A histogram of codes for each guess, by one count over all of them: [block, 243].
        flat = codes + (np.arange(len(codes)) * NUM_CODES)[:, None]
        counts = np.bincount(flat.ravel(), minlength=len(codes) * NUM_CODES)
        several = np.flatnonzero(counts > 1)  # codes with at most one word add nothing
        lost = np.bincount(several // NUM_CODES, weights[counts[several]], len(codes))
        gains[start : start + block] = np.log(count) - lost / count
    return gains


def best_words(table: np.ndarray, members: np.ndarray) -> np.ndarray:
    """The fitting words with the most information, int [at least 1]."""
    gains = information_gain(table, members)
    return members[gains >= gains.max() - TIE]
