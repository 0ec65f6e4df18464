"""Reads logs of published ILQL evaluations, without running their code;
`ilql.evaluation.published_log` writes them.

A log is a pickle {all_logs, eval_dump {results, entropies, ...}, config}. `results` has an item per
episode, whose second entry is a list of steps (observation, action, reward, end). `entropies` has a
number per episode.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.published.pickles import read_file, reading

_REWARD = 2


@dataclasses.dataclass(frozen=True)
class EvaluationLog:
    """What `distill_policy_eval` computes: finite returns and, as logged, entropies (or none),
    float64 [episodes].
    """

    returns: np.ndarray
    entropies: np.ndarray

    def in_words(self) -> str:
        """The means with their standard errors, such as '100 episodes, return -1.8 +- 0.1'."""
        parts = [f"{len(self.returns)} episodes"]
        for name, values in (("return", self.returns), ("entropy", self.entropies)):
            if len(values):
                error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
                parts.append(f"{name} {values.mean():.4f} +- {error:.4f}")
        return ", ".join(parts)


def read(path: str | os.PathLike[str]) -> EvaluationLog:
    """Reads a log. Raises UserError: the file cannot be read, is not such a log, or has non-finite
    rewards.
    """
    path = Path(path)
    with reading(path, "a log of a published evaluation"):
        dump = read_file(path)["eval_dump"]
        returns = [sum(float(step[_REWARD]) for step in result[1]) for result in dump["results"]]
        # A number for an episode, or one for each of its tokens.
        entropies = [float(np.sum(value)) for value in dump.get("entropies", ())]
    if not returns:
        raise UserError(f"{path} is a log without an episode")
    if not np.isfinite(returns).all():
        raise UserError(f"{path} holds rewards that are not finite")
    return EvaluationLog(np.array(returns), np.array(entropies))
