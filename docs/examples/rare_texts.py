"""A reward that needs no judge and changes while the agent plays: the more often the agent has met
a text, the less it pays.

    PYTHONPATH=docs/examples python -m motif_jax.launch --config=configs/train_agent.py:minigrid \\
        --workdir=runs/rare --config.reward.kind=rare_texts:RareTexts \\
        --config.reward.intrinsic_coefficient=0.1

A run that names a class from outside the package is opened with
`--config.trust=rare_texts:RareTexts`.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from motif_jax.envs import registry
from motif_jax.motif.annotation.captions import decode_message
from motif_jax.rewards import BatchMessages, RewardKind, RewardSetup, Values


class RareTexts(RewardKind):
    """Pays a text 1 / sqrt(1 + N), with N the rewarded steps of earlier batches that showed it
    (Bellemare et al. 2016).
    """

    keeps_state = True
    reads_dir = False

    def __init__(self, text_field: str) -> None:
        self.fields = (text_field,)
        self.description = "rare texts"
        # The batcher's thread pays, the main thread saves and logs.
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._version = 0

    @classmethod
    def check_run(cls, config: Any, spec: Any) -> None:
        registry.require_text(config.environment.name, spec.text_field)

    @classmethod
    def make(cls, setup: RewardSetup) -> RareTexts:
        return cls(str(setup.spec.text_field))

    def lookup(self, texts: np.ndarray) -> Values:
        with self._lock:
            counts = [self._counts.get(decode_message(text), 0) for text in texts]
            return Values(1 / np.sqrt(1 + np.array(counts, np.float32)), self._version)

    def observe(self, batch: BatchMessages) -> None:
        with self._lock:
            for text, count in zip(batch.texts, batch.counts.tolist(), strict=True):
                key = decode_message(text)
                self._counts[key] = self._counts.get(key, 0) + count
            self._version += 1

    def state(self) -> dict[str, Any]:
        with self._lock:
            return {"counts": dict(self._counts), "version": self._version}

    def restore(self, state: dict[str, Any]) -> None:
        self._counts = dict(state["counts"])
        self._version = state["version"]

    def metrics(self) -> dict[str, float]:
        return {"rare_texts/texts": float(len(self._counts))}
