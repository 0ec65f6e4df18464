"""Kind 'retrieval': a text's reward is its label, and 0 before it has one (ONI, section 4)."""

from __future__ import annotations

import numpy as np

from motif_jax.core.verdicts import YES
from motif_jax.oni.online import OnlineReward


class RetrievalReward(OnlineReward):
    """A table of labels: 1 for a text with label yes, 0 for any other.

    With `config.value` 'probability' it is the probability of yes, where the annotator has one.
    """

    def values(self, texts: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        is_yes = (self.stats.label[rows] == YES).astype(np.float32)
        if self.config.value == "label":
            return is_yes
        probability = self.stats.probability[rows]
        # NaN: the annotator gives no probability, or there is no label.
        return np.where(np.isnan(probability), is_yes, probability).astype(np.float32)
