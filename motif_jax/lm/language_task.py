"""Training of a language model to predict tokens, as a task of the offline trainer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.core.training.task import Evaluation, TrainingPosition
from motif_jax.lm.sums_task import SumsTask
from motif_jax.lm.text_batches import ItemBatches, WindowBatches
from motif_jax.lm.training import LanguageTrainState
from motif_jax.lm.training_config import LanguageModelConfig


class LanguageTask(SumsTask):
    """A training of a language model."""

    config: LanguageModelConfig
    title, unit = "train language model", "tokens"
    _train: WindowBatches | ItemBatches

    def units(self, step: int) -> int:
        return step * self.config.batch_size * self.config.length

    def tally(self, metrics: Mapping[str, np.ndarray]) -> dict[str, Any]:
        tokens = metrics["tokens"].astype(np.float64)
        means = {name: (metrics[name] * tokens).sum() for name in ("loss", "accuracy")}
        norm = metrics["gradient_norm"].sum(dtype=np.float64)
        return {"steps": tokens.size, "tokens": tokens.sum(), **means, "gradient_norm": norm}

    def shown(self, sums: Mapping[str, float]) -> dict[str, float]:
        if not sums.get("tokens"):
            return {}
        loss = sums["loss"] / sums["tokens"]
        return {"loss": loss, "perplexity": perplexity(loss)}

    def evaluate(self, state: LanguageTrainState, shared: Any, position: TrainingPosition) -> Evaluation:
        found = self.held_out(state, shared, position)
        trained = position.mean("loss", "tokens")
        row = {
            "validation/loss": found.loss,
            "validation/perplexity": perplexity(found.loss),
            "validation/accuracy": found.accuracy,
            "validation/tokens": round(found.counted),
            "train/loss": trained,
            "train/perplexity": perplexity(trained),
            "train/accuracy": position.mean("accuracy", "tokens"),
            "train/tokens": self.units(position.step),
            "train/passes": position.step / self._train.steps_per_pass,
        }
        text = f"perplexity {perplexity(found.loss):.2f} on {round(found.counted):,} held-out tokens"
        return self.evaluation(row, text, position)


def perplexity(loss: float) -> float:
    """exp of the loss a token; infinity on overflow."""
    return math.exp(loss) if not loss > 700 else math.inf
