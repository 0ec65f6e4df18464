"""Reads the published tool's `distrib.csv`: an agent's action scores on probes before each
update.
"""

from __future__ import annotations

import csv
import os
import re

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.envs.babyai_text import catalogue

FILE = "distrib.csv"
# Actions that the experiments added to the first six.
_MORE = ("sleep", "do nothing", "think")


def actions_of(name: str) -> tuple[str, ...]:
    """The actions of a published run by the number in its name (default six); 'action N' after the
    published lists.
    """
    match = re.search(r"_nbr_actions_(\d+)_", f"_{name}_")
    count = int(match[1]) if match else len(catalogue.ACTIONS)
    names = [*catalogue.ACTIONS, *_MORE][:count]
    names += [f"action {number}" for number in range(len(names) + 1, count + 1)]
    return tuple(names)


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Probabilities of actions float64 [..., actions]: the scores if they sum to 1, else their
    softmax.
    """
    are_probabilities = (scores >= 0).all() and np.allclose(scores.sum(axis=-1), 1, atol=1e-3)
    powers = scores if are_probabilities else np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def read_distributions(path: str | os.PathLike[str], actions: int) -> np.ndarray:
    """Reads float64 [updates, probes, actions]: probabilities in files of the first release, raw
    scores in later ones.

    Raises:
      UserError: the file is missing, or its rows differ in length or have no multiple of `actions`
          numbers.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = [[float(cell) for cell in row] for row in csv.reader(file) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as numbers: {error}") from None
    widths = {len(row) for row in rows}
    if len(widths) != 1 or next(iter(widths)) % actions:
        counts = ", ".join(map(str, sorted(widths))) or "no"
        raise UserError(
            f"{path}: has rows of {counts} numbers; all rows must have the same count, a multiple of {actions} actions"
        )
    return np.array(rows, np.float64).reshape(len(rows), -1, actions)
