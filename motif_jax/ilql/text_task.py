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
from motif_jax.core.training import block_stack, gradient_sums
from motif_jax.core.training.finite import all_finite, update_if
from motif_jax.core.training.task import Evaluation, TrainingPosition, diverged, shapes_of
from motif_jax.ilql.agent import agent_start
from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.methods import Counts, TextBatch
from motif_jax.ilql.objective import CountedBatch, LossTerms, Objective
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

    `parameters` are initial trained, target and frozen ones, host arrays (see `agent_start.Start`);
    `learned` and `target` are shapes of trained parameters and of targets.
    """

    config: TextConfig
    title, unit = "train text agent", "dialogues"
    # The agent's parameters -> measures of evaluation episodes by name; None: none are played.
    play: Callable[[Any], Mapping[str, float]] | None = None

    def __init__(
        self,
        config: TextConfig,
        objective: Objective,
        parameters: tuple[Any, Any, Any],
        data: TrainingData,
        parallel: DataParallel,
    ) -> None:
        learned, target, frozen = parameters
        self._has_dropout = config.dropout > 0 and not objective.rule.proposes
        super().__init__(
            config, (learned, frozen), data, parallel, self._has_dropout, config.max_steps
        )
        self.objective = objective
        # Only until `init_state` hands it over, so that memory holds it once.
        self._start_target = target
        self.target = shapes_of(target)
        # As published: without a loss on values the targets stay as well.
        self._updates_target = bool(self.target) and objective.weights.trains_values
        self._polyak = config.method.polyak
        self._copy_every = config.method.copy_every
        self._measure = parallel.wrap(self.measure_core)
        self._held_out = data.held_out.all_batches(config.evaluation_batches)

    def _counted(self, batches: TextBatch, average: str) -> CountedBatch:
        """Micro-batches [M, B, ...] and the denominators [M] of their sums, over all devices."""
        counts_of = jax.vmap(self.objective.counts)
        # Before the loss, since each device divides by the counts of all: gradients are added over
        # devices, not averaged.
        counts = jax.lax.psum(counts_of(batches), AXIS)
        if average == "batch":
            # Every micro-batch is divided by the counts of the whole batch.
            denominators = [
                jnp.full_like(per_micro_batch, per_micro_batch.sum()) for per_micro_batch in counts
            ]
        else:
            # The loss is the mean of the micro-batches' means.
            denominators = [per_micro_batch * len(per_micro_batch) for per_micro_batch in counts]
        return CountedBatch(batches, Counts(*denominators))

    def measure_core(
        self, state: tuple[Any, Any, Any], batch: TextBatch
    ) -> tuple[LossTerms, Counts]:
        """The terms of a batch as means, and the numbers of actions and tokens behind them."""
        params, target, shared = state
        parts = self._counted(self.micro_batches(batch), "batch")
        frozen = {**(shared or {}), "target": target}
        terms = jax.lax.map(lambda part: self.objective.terms(params, frozen, part, None), parts)
        total = jax.lax.psum(jax.tree.map(lambda term: term.sum(axis=0), terms), AXIS)
        # With average 'batch' all micro-batches have the denominators of the batch.
        return total, Counts(parts.counts.actions[0], parts.counts.policy[0])

    def computation(self) -> tuple[str, str] | None:
        return self.config.dtype, self.config.matmul_precision

    def counted_loss(self, state: TextState, shared: Any, batch: TextBatch) -> jax.Array:
        frozen = {**(shared or {}), "target": state.target}
        # Only products are counted, so that any denominator does.
        one = jnp.float32(1.0)
        return self.objective.terms(
            state.params, frozen, CountedBatch(batch, Counts(one, one)), None
        ).loss

    def init_state(self) -> TextState:
        learned, opt_state, step = self.start()
        target = self._start_target
        self._start_target = None
        return TextState(learned, target, opt_state, step)

    def step(
        self, state: TextState, shared: Any, batch: TextBatch
    ) -> tuple[TextState, dict[str, jax.Array]]:
        return self.guarded_step(state, shared, batch, jnp.array(True))[:2]

    def guarded_step(
        self, state: TextState, shared: Any, batch: TextBatch, may_apply: jax.Array
    ) -> tuple[TextState, dict[str, jax.Array], jax.Array]:
        key = self.dropout_key(state.step) if self._has_dropout else None
        # Outermost, so that gradients, moments and targets are stacked, too.
        state, shared = block_stack.stacked_for_loop((state, shared))
        frozen = {**(shared or {}), "target": state.target}
        sums = gradient_sums.gradient_sums(
            self.objective.measured,
            state.params,
            frozen,
            self._counted(batch, self.config.average),
            key,
        )
        gradient, measured = gradient_sums.over_devices(sums, AXIS)
        metrics = {
            **self._named(measured.terms),
            **gradient_sums.named(measured.spreads),
            "gradient_norm": optax.tree.norm(gradient),
            TOKENS: jax.lax.psum(jnp.sum(batch.valid, dtype=jnp.float32), AXIS),
        }
        # The gradient's norm is among them, which is not finite where any of its numbers is not.
        is_finite = all_finite(metrics)
        new = self._update(state, gradient, is_finite & may_apply)
        return block_stack.unstacked(new), metrics, is_finite

    def _update(self, state: TextState, gradient: Any, applies: jax.Array) -> TextState:
        """The state after a step if it `applies`; each part is updated in the memory of the old
        one.
        """

        def optimise(gradient_and_state: tuple[Any, Any], params: Any) -> tuple[Any, Any]:
            return self.optimizer.update(*gradient_and_state, params)

        def follow(target: Any, params: Any) -> Any:
            return soft_update(
                target, self.followed(params), state.step + 1, self._polyak, self._copy_every
            )

        updates, opt_state = update_if(applies, optimise, (gradient, state.opt_state), state.params)
        params = update_if(applies, optax.apply_updates, state.params, updates)
        # After the parameters: targets follow those of this step.
        target = state.target
        if self._updates_target:
            target = update_if(applies, follow, state.target, params)
        return TextState(params, target, opt_state, state.step + applies)

    def followed(self, params: Any) -> Any:
        """The trained parameters that the targets follow, as a tree like `target`."""
        tree: dict[str, Any] = {
            "heads": {name: params["heads"][name] for name in self.target["heads"]}
        }
        for group in ("trunks", "additions"):
            if group in self.target:
                # Additions follow alone, since both trunks have one frozen base (`agent_start`).
                tree[group] = {"target": params[group]["values"]}
        return tree

    def _named(self, terms: LossTerms) -> dict[str, Any]:
        """The loss and the terms that have a weight, by name."""
        weights = self.objective.weights.of_terms
        names = [name for name, weight in weights.items() if weight]
        return {name: getattr(terms, name) for name in ("loss", *names)}

    def logged(self, metrics: Mapping[str, np.ndarray], seconds: float) -> dict[str, float]:
        row = {}
        for name, numbers in metrics.items():
            if name == TOKENS:
                continue
            # The extreme of a chunk of steps is that of its steps; everything else is a mean.
            reduce = {"min": np.min, "max": np.max}.get(name.rpartition("_")[2], np.mean)
            row[f"train/{name}"] = float(reduce(numbers))
        row["throughput/tokens_per_second"] = float(metrics[TOKENS].sum()) / seconds
        return row

    def items(self, state: TextState) -> dict[str, Any]:
        return {
            name: part for name, part in state._asdict().items() if name != "target" or self.target
        }

    def evaluate(self, state: TextState, shared: Any, position: TrainingPosition) -> Evaluation:
        terms = self._named(self._held_out_terms(state, shared))
        if not math.isfinite(terms["loss"]):
            raise diverged(
                f"the loss on held-out dialogues after step {position.step:,} not finite",
                self.remedy,
            )
        row: dict[str, Any] = {f"validation/{name}": float(value) for name, value in terms.items()}
        row |= {f"train/{name}": position.mean(name) for name in terms}
        row["train/dialogues"] = self.units(position.step)
        text = ", ".join(f"{name} {value:.4f}" for name, value in terms.items())
        text += " (held-out dialogues)"
        if self.play is not None:
            parts = self.parallel.acting((state.params, state.target, shared or {}))
            games = self.play(agent_start.agent_params(self.objective, *parts))
            row |= games
            text += f", return {games['games/return']:.4f} ({self.config.games.episodes} episodes)"
        return self.evaluation(row, text, position)

    def _held_out_terms(self, state: TextState, shared: Any) -> LossTerms:
        """The loss and its terms on all held-out batches, float64."""
        sums = np.zeros(len(LossTerms._fields))
        actions = policy_tokens = 0.0
        for batch in self._held_out:
            on_devices = self.parallel.put_whole(batch, 0)
            terms, counts = jax.device_get(
                self._measure((state.params, state.target, shared), on_devices)
            )
            # Back from means to sums, since batches have different numbers of actions.
            sums += np.asarray(terms, np.float64) * self._denominators(
                counts.actions, counts.policy
            )
            actions += float(counts.actions)
            policy_tokens += float(counts.policy)
        means = LossTerms(*(sums / np.maximum(self._denominators(actions, policy_tokens), 1)))
        weights = self.objective.weights.of_terms
        # From the means: the terms of a batch's loss have different denominators.
        loss = sum(weight * getattr(means, name) for name, weight in weights.items())
        return means._replace(loss=loss)

    @staticmethod
    def _denominators(actions: float, policy_tokens: float) -> np.ndarray:
        """What each of `LossTerms` is a mean over: the policy's over its tokens, other terms over
        actions; the loss is added later.
        """
        of_terms = dict.fromkeys(LossTerms._fields, float(actions))
        of_terms |= {"loss": 0.0, "policy": float(policy_tokens)}
        return np.array(list(of_terms.values()), np.float64)


def soft_update(
    target: Any, online: Any, step: jax.Array, polyak: float = 0.005, copy_every: int | None = None
) -> Any:
    """The targets after a step of the optimiser: target + polyak (online - target), leaf by leaf.

    Args:
      target, online: trees of one structure; float32, since lower precision loses small updates.
      step: int32 [], 1 after the first step.
      polyak: the share of `online` in each update (Lillicrap et al. 2016).
      copy_every: steps between additional copies of `online` (Mnih et al. 2015); None: no copies.
    """
    # Chosen by a number, not a branch: `step` is known on the device alone.
    rate: Any = polyak
    if copy_every is not None:
        rate = jnp.where(step % copy_every == 0, 1.0, polyak)
    return jax.tree.map(
        lambda old, new: (old + rate * (new - old)).astype(old.dtype), target, online
    )
