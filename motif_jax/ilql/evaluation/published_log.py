"""Writes an evaluation's episodes in the layout of published ILQL logs, which `published.results`
reads.

A log is a pickle {all_logs, eval_dump {results, entropies}, config} of plain containers and
numbers.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.files import atomic_write_bytes

FILE = "eval_log.pkl"


def write(
    path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any]
) -> None:
    """Writes rows of an evaluation's journal; an entropy or divergence that was not measured is 0,
    as published.
    """
    results: list[Any] = []
    entropies: list[float] = []
    for row in rows:
        texts = row["dialogue"]["texts"]
        rewards = row["dialogue"]["rewards"]
        actions = [index for index, reward in enumerate(rewards) if reward is not None]
        # A step: (observation, action, reward, end).
        steps = [
            (tuple(texts[:index]), texts[index], float(rewards[index]), index == actions[-1])
            for index in actions
        ]
        results.append((tuple(texts), steps))
        entropies.append(float(row.get("entropy") or 0.0))
    log = {
        "all_logs": {
            "env_reward": float(np.mean([row["return"] for row in rows])),
            "token_reward": float(
                np.mean([row.get("token_return", row["return"]) for row in rows])
            ),
            "kl": float(np.mean([row.get("divergence") or 0.0 for row in rows])),
        },
        "eval_dump": {"results": results, "entropies": entropies},
        "config": dict(config),
    }
    atomic_write_bytes(Path(path), pickle.dumps(log, protocol=4))
