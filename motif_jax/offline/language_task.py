"""A language model that learns to predict tokens, as a task of the offline trainer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.algorithms import schedules
from motif_jax.devices.parallel import AXIS, DataParallel
from motif_jax.language import dropout, training
from motif_jax.language.adapting import Adaptation
from motif_jax.language.training import LanguageTrainState, TokenBatch, TokenSums
from motif_jax.offline.task import Evaluation, Task, TrainingPosition, diverged, drawn_by, shapes_of
from motif_jax.offline.text_batches import TextBatches
from motif_jax.support import seeds
from motif_jax.support.run_folder import as_plain


class LanguageTask(Task):
    """One training.

    Args:
      config: of the run.
      adaptation: what is learned.
      learned, frozen: its parameters at the start, numpy arrays.
      train: batches to learn from.
      held_out: batches to measure with; all of them, or `config.evaluation_batches`.
      parallel: the devices.
      digests: of everything read.
    """

    title, unit, criterion = "train language model", "tokens", "validation/loss"

    def __init__(
        self,
        config: ConfigDict,
        adaptation: Adaptation,
        learned: Any,
        frozen: Any,
        train: TextBatches,
        held_out: TextBatches,
        parallel: DataParallel,
        digests: Mapping[str, str],
    ) -> None:
        self.config, self.adaptation, self.parallel = config, adaptation, parallel
        self._learned, self._frozen, self._train = learned, frozen, train
        self.learned = shapes_of(learned)
        self.steps, self.steps_per_epoch, self.chunk_steps = (
            config.steps,
            config.evaluate_every,
            config.chunk_steps,
        )
        self.digests = {**digests, **drawn_by(len(parallel.devices), adaptation.dropout)}
        self.source = config.tokens or config.texts
        self.remedy = (
            f"a smaller --config.optimizer.learning_rate (it is {config.optimizer.learning_rate:g}) or with "
            "--config.optimizer.max_gradient_norm=1"
        )
        # Matrices decay, norms and biases do not; of additions both matrices do.
        self.optimizer = schedules.make_optimizer(config.optimizer, config.steps, schedules.matrices)
        self._schedule = schedules.make_schedule(config.optimizer, config.steps)
        key = dropout.key(seeds.derive(config.seed, "dropout") % 2**32)

        def key_of(step: jax.Array) -> jax.Array:
            return jax.random.fold_in(jax.random.fold_in(key, step), jax.lax.axis_index(AXIS))

        self._update = training.make_update(
            adaptation.sums,
            self.optimizer,
            lambda tree: jax.lax.psum(tree, AXIS),
            key_of if adaptation.dropout else None,
        )
        self._measure = parallel.wrap(self._measure_core)
        self._held_out = held_out.whole(config.evaluation_batches or 2**31)

    def _measure_core(self, state: tuple[Any, Any], batch: TokenBatch) -> TokenSums:
        return jax.lax.psum(self.adaptation.sums(*state, batch, None), AXIS)

    def init_state(self) -> LanguageTrainState:
        """The learned parameters as they are at the start, and a fresh optimiser's state."""
        learned, self._learned = self._learned, None
        return LanguageTrainState(learned, jax.device_get(jax.jit(self.optimizer.init)(learned)), np.int32(0))

    def shared(self) -> Any:
        """The frozen parameters."""
        return self._frozen

    def step(
        self, state: LanguageTrainState, shared: Any, batch: TokenBatch
    ) -> tuple[LanguageTrainState, dict[str, jax.Array]]:
        """See `training.make_update`."""
        return self._update(state, shared, batch)

    def batches(self, first: int, count: int) -> TokenBatch:
        """Leaves [count, micro-batches, rows, ...]."""
        parts = self.config.accumulate
        whole = self._train.batches(first, count)
        return jax.tree.map(lambda leaf: leaf.reshape(count, parts, -1, *leaf.shape[2:]), whole)

    def batch_axes(self, batches: TokenBatch) -> int:
        """That of the rows."""
        return 2

    def units(self, step: int) -> int:
        """Places for tokens in the rows of `step` steps."""
        return step * self.config.batch_size * self.config.length

    def tally(self, metrics: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Sums over tokens, and of the gradient's norms over steps."""
        tokens = metrics["tokens"].astype(np.float64)
        return {
            "steps": tokens.size,
            "tokens": tokens.sum(),
            "loss": (metrics["loss"] * tokens).sum(),
            "accuracy": (metrics["accuracy"] * tokens).sum(),
            "gradient_norm": metrics["gradient_norm"].sum(dtype=np.float64),
        }

    def shown(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Loss and perplexity of the tokens since the last evaluation."""
        if not sums.get("tokens"):
            return {}
        loss = sums["loss"] / sums["tokens"]
        return {"loss": loss, "perplexity": perplexity(loss)}

    def evaluate(self, state: LanguageTrainState, shared: Any, position: TrainingPosition) -> Evaluation:
        """Loss, perplexity and accuracy on the held-out text.

        Raises:
          UserError: the loss is not finite.
        """
        total = np.zeros(len(TokenSums._fields))
        for batch in self._held_out:
            sums = self._measure((state.params, shared), self.parallel.put_whole(batch, 0))
            total += np.asarray(jax.device_get(sums), np.float64)
        loss, accuracy = total[0] / total[1], total[2] / total[1]
        if not math.isfinite(loss):
            raise diverged(f"the loss on held-out text after step {position.step:,} not finite", self.remedy)
        trained = position.mean("loss", "tokens")
        row = {
            "validation/loss": loss,
            "validation/perplexity": perplexity(loss),
            "validation/accuracy": accuracy,
            "validation/tokens": round(float(total[1])),
            "train/loss": trained,
            "train/perplexity": perplexity(trained),
            "train/accuracy": position.mean("accuracy", "tokens"),
            "train/gradient_norm": position.mean("gradient_norm"),
            "train/tokens": self.units(position.step),
            "train/passes": position.step / self._train.steps_per_pass,
            "optimizer/learning_rate": position.learning_rate(self._schedule),
        }
        text = f"step {position.step:,}: perplexity {row['validation/perplexity']:.2f} on {row['validation/tokens']:,} held-out tokens"
        return Evaluation(row, {"config": as_plain(self.config)}, text)


def perplexity(loss: float) -> float:
    """exp of a loss a token, infinity where that is no number."""
    return math.exp(loss) if not loss > 700 else math.inf
