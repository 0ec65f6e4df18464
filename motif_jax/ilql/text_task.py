"""Training of a text agent on recorded dialogues, as a task of the offline trainer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from motif_jax.core.devices.parallel import AXIS, DataParallel
from motif_jax.core.training import block_stack, spread
from motif_jax.core.training.finite import all_finite, update_if
from motif_jax.core.training.task import Evaluation, TrainingPosition, diverged, shapes_of
from motif_jax.ilql.agent import agent_start
from motif_jax.ilql.agent.target_network import soft_update
from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.methods import implicit_q
from motif_jax.ilql.methods.implicit_q import Counts, TextBatch
from motif_jax.ilql.methods.text_objective import LossTerms, Objective, Part
from motif_jax.lm import training
from motif_jax.lm.sums_task import GradientTask, TrainingData

# Metric of a step: tokens of its dialogues, without padding.
TOKENS = "tokens"


class TextState(NamedTuple):
    """The state that a step changes."""

    params: Any  # trained trunks or additions to them, heads, prefix
    target: Any  # target trunks or additions, and heads; empty where the method has none
    opt_state: Any
    step: Any  # int32 scalar, steps taken


class TextTraining(GradientTask):
    """A training on batches of dialogues, `TextBatch`.

    `parameters` are initial trained, target and frozen ones, host arrays (see `Objective.measured`); `learned` and `target`
    are shapes of trained parameters and of targets.
    """

    config: TextConfig
    title, unit = "train text agent", "dialogues"
    # (The agent's parameters) -> measures of evaluation episodes by name; None: none are played.
    play: Callable[[Any], Mapping[str, float]] | None = None

    def __init__(
        self,
        config: TextConfig,
        objective: Objective,
        parameters: tuple[Any, Any, Any],
        data: TrainingData,
        parallel: DataParallel,
    ) -> None:
        learned, self._start_target, frozen = parameters
        drawn = objective.dropout and not objective.rule.proposes
        super().__init__(config, (learned, frozen), data, parallel, drawn, config.max_steps)
        self.objective, self.target = objective, shapes_of(self._start_target)
        self._updates_target = bool(self.target) and objective.weights.of_values
        self._polyak, self._copy_every = config.method.polyak, config.method.copy_every
        self._measure = parallel.wrap(self._measure_core)
        self._held_out = data.held_out.whole(config.evaluation_batches)

    def _parts(self, batches: TextBatch, average: str) -> Part:
        """Micro-batches [M, B, ...] and the denominators [M] of their sums, over all devices."""
        count = jax.vmap(lambda batch: implicit_q.counts(batch, self.objective.settings))
        found = jax.lax.psum(count(batches), AXIS)
        if average == "batch":
            totals = [jnp.full_like(each, each.sum()) for each in found]
        else:  # the mean of the micro-batches' means
            totals = [each * len(each) for each in found]
        return Part(batches, Counts(*totals))

    def _measure_core(self, state: tuple[Any, Any, Any], batch: TextBatch) -> tuple[LossTerms, Counts]:
        """The terms of a batch as means, and the numbers of actions and tokens behind them."""
        params, target, shared = state
        parts = self._parts(self.micro_batches(batch), "batch")
        frozen = {**(shared or {}), "target": target}
        terms = jax.lax.map(lambda part: self.objective.terms(params, frozen, part, None), parts)
        total = jax.lax.psum(jax.tree.map(lambda term: term.sum(axis=0), terms), AXIS)
        return total, Counts(*(each[0] for each in parts.counts))

    def computation(self) -> tuple[str, str] | None:
        return self.config.dtype, self.config.matmul_precision

    def counted_loss(self, state: TextState, shared: Any, batch: TextBatch) -> jax.Array:
        frozen = {**(shared or {}), "target": state.target}
        return self.objective.terms(
            state.params, frozen, Part(batch, Counts(jnp.float32(1.0), jnp.float32(1.0))), None
        ).loss

    def init_state(self) -> TextState:
        (learned, opt_state, step), target = self.start(), self._start_target
        self._start_target = None
        return TextState(learned, target, opt_state, step)

    def step(self, state: TextState, shared: Any, batch: TextBatch) -> tuple[TextState, dict[str, jax.Array]]:
        return self.guarded_step(state, shared, batch, jnp.array(True))[:2]

    def guarded_step(
        self, state: TextState, shared: Any, batch: TextBatch, goes_on: jax.Array
    ) -> tuple[TextState, dict[str, jax.Array], jax.Array]:
        key = self.dropout_key(state.step) if self.objective.dropout else None
        state, shared = block_stack.arranged((state, shared))
        frozen = {**(shared or {}), "target": state.target}
        sums = training.gradient_sums(
            self.objective.measured, state.params, frozen, self._parts(batch, self.config.average), key
        )
        gradient, measured = spread.over_devices(sums, AXIS)
        metrics = {
            **self._named(measured.terms),
            **spread.named(measured.spreads),
            "gradient_norm": optax.tree.norm(gradient),
            TOKENS: jax.lax.psum(jnp.sum(batch.valid, dtype=jnp.float32), AXIS),
        }
        finite = all_finite(metrics)
        new = self._updated(state, gradient, finite & goes_on)
        return block_stack.unstacked(new), metrics, finite

    def _updated(self, state: TextState, gradient: Any, applies: jax.Array) -> TextState:
        """The state after a step if it `applies`; each part is updated in the memory of the old one."""

        def optimised(old: tuple[Any, Any], params: Any) -> tuple[Any, Any]:
            return self.optimizer.update(*old, params)

        def followed(old: Any, params: Any) -> Any:
            return soft_update(old, self.followed(params), state.step + 1, self._polyak, self._copy_every)

        updates, opt_state = update_if(applies, optimised, (gradient, state.opt_state), state.params)
        params = update_if(applies, optax.apply_updates, state.params, updates)
        target = update_if(applies, followed, state.target, params) if self._updates_target else state.target
        return TextState(params, target, opt_state, state.step + applies)

    def followed(self, params: Any) -> Any:
        """The trained parameters that the targets follow, as a tree like `target`."""
        groups = [group for group in ("trunks", "additions") if group in self.target]
        heads = {name: params["heads"][name] for name in self.target["heads"]}
        return {**{group: {"target": params[group]["values"]} for group in groups}, "heads": heads}

    def _named(self, terms: LossTerms) -> dict[str, Any]:
        weights = self.objective.weights
        kept = [name for name in LossTerms._fields if name == "loss" or getattr(weights, name)]
        return {name: getattr(terms, name) for name in kept}

    def logged(self, metrics: Mapping[str, np.ndarray], seconds: float) -> dict[str, float]:
        chosen = {"min": np.min, "max": np.max}
        row = {
            f"train/{name}": float(chosen.get(name.rpartition("_")[2], np.mean)(numbers))
            for name, numbers in metrics.items()
            if name != TOKENS
        }
        return row | {"throughput/tokens_per_second": float(metrics[TOKENS].sum()) / seconds}

    def items(self, state: TextState) -> dict[str, Any]:
        return {name: part for name, part in state._asdict().items() if name != "target" or self.target}

    def evaluate(self, state: TextState, shared: Any, position: TrainingPosition) -> Evaluation:
        totals, counted = np.zeros(len(LossTerms._fields)), np.zeros(2)
        for batch in self._held_out:
            placed = self.parallel.put_whole(batch, 0)
            terms, counts = jax.device_get(self._measure((state.params, state.target, shared), placed))
            actions, policy = (float(each) for each in counts)
            # Terms are means: the policy's over its tokens, the others over actions.
            totals += np.asarray(terms, np.float64) * [0, *[actions] * 4, policy]
            counted += (actions, policy)
        means = LossTerms(*(totals / np.maximum([1, *[counted[0]] * 4, counted[1]], 1)))
        weights = self.objective.weights
        loss = sum(getattr(weights, name) * getattr(means, name) for name in LossTerms._fields[1:])
        if not math.isfinite(loss):
            raise diverged(
                f"the loss on held-out dialogues after step {position.step:,} not finite", self.remedy
            )
        means = means._replace(loss=loss)
        row: dict[str, Any] = {f"validation/{name}": float(x) for name, x in self._named(means).items()}
        row |= {f"train/{name}": position.mean(name) for name in self._named(means)}
        row["train/dialogues"] = self.units(position.step)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in self._named(means).items())
        shown += " (held-out dialogues)"
        if self.play is not None:
            one = self.parallel.acting((state.params, state.target, shared or {}))
            row |= (played := self.play(agent_start.whole(self.objective, *one)))
            shown += f", return {played['games/return']:.4f} ({self.config.games.episodes} episodes)"
        return self.evaluation(row, shown, position)
