"""Training of a language model to predict tokens, as a task of the offline trainer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.core.training.gradient_sums import TrainState
from motif_jax.core.training.task import Evaluation, TrainingPosition
from motif_jax.lm.sums_task import SumsTask
from motif_jax.lm.text_batches import ItemBatches, WindowBatches
from motif_jax.lm.training_config import LanguageModelConfig


class LanguageTask(SumsTask):
    """A training of a language model."""

    config: LanguageModelConfig
    title = "train language model"
    unit = "tokens"
    _train: WindowBatches | ItemBatches

    def units(self, step: int) -> int:
        # Places for tokens, padding included; the tokens that were learned are in `tally`.
        return step * self.config.batch_size * self.config.length

    def tally(self, metrics: Mapping[str, np.ndarray]) -> dict[str, Any]:
        tokens = metrics["tokens"].astype(np.float64)
        # A step's loss and accuracy are means over its tokens: weighted by them, sums of steps give
        # means over all tokens.
        return {
            "steps": tokens.size,
            "tokens": tokens.sum(),
            "loss": (metrics["loss"] * tokens).sum(),
            "accuracy": (metrics["accuracy"] * tokens).sum(),
            "gradient_norm": metrics["gradient_norm"].sum(dtype=np.float64),
        }

    def shown(self, sums: Mapping[str, float]) -> dict[str, float]:
        if not sums.get("tokens"):
            return {}
        loss = sums["loss"] / sums["tokens"]
        return {"loss": loss, "perplexity": perplexity(loss)}

    def evaluate(self, state: TrainState, shared: Any, position: TrainingPosition) -> Evaluation:
        held_out = self.held_out(state, shared, position)
        train_loss = position.mean("loss", "tokens")
        row = {
            "validation/loss": held_out.loss,
            "validation/perplexity": perplexity(held_out.loss),
            "validation/accuracy": held_out.accuracy,
            "validation/tokens": round(held_out.counted),
            "train/loss": train_loss,
            "train/perplexity": perplexity(train_loss),
            "train/accuracy": position.mean("accuracy", "tokens"),
            "train/tokens": self.units(position.step),
            "train/passes": position.step / self._train.steps_per_pass,
        }
        text = f"perplexity {perplexity(held_out.loss):.2f} on {round(held_out.counted):,} held-out tokens"
        return self.evaluation(row, text, position)


def perplexity(loss: float) -> float:
    """exp of the loss (nats a token); infinity on overflow."""
    return math.inf if loss > 700 else math.exp(loss)
