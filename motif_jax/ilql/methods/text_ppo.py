"""PPO of a text agent (`ilql.methods.token_ppo`), as a task of the offline trainer: a step plays whole episodes and trains on them.

Policy and value share a trunk; the value is a head, which is not part of the agent's folder. The penalty's reference is the initial policy:
the frozen trunk under low-rank additions, else a copy. Episodes depend on the state and the step's number alone, so that a resumed run
ends with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from motif_jax.core.devices.parallel import AXIS, DataParallel
from motif_jax.core.training import block_stack, reductions
from motif_jax.core.training.task import Evaluation, TrainingPosition, key_of
from motif_jax.ilql.agent import agent_start, decoding
from motif_jax.ilql.agent.agent_start import Start
from motif_jax.ilql.agent.text_agent import POLICY, V
from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.methods import token_ppo
from motif_jax.ilql.methods.implicit_q import TextBatch, next_tokens
from motif_jax.ilql.methods.text_objective import Objective, chosen_states, joined
from motif_jax.ilql.methods.token_ppo import EpisodeBatch
from motif_jax.lm.chunks import in_chunks
from motif_jax.lm.heads import HeadConfig, Heads
from motif_jax.lm.sampling import token_log_probs
from motif_jax.lm.sums_task import GradientTask, TrainingData
from motif_jax.rl.algorithms import kl_penalty, ppo, update

VALUE, REFERENCE = "value", "reference"
_RETURN = "episode/return"


class PpoState(NamedTuple):
    """The state that a step changes."""

    params: Any  # `trunks` or `additions` to them, and `value`, the head
    opt_state: Any
    step: Any  # int32 scalar, steps taken
    kl_coefficient: Any  # float32 scalar, of the penalty


class TokenEstimates(NamedTuple):
    """Log-probabilities and entropies of tokens float32 [B, K], and values of states float32 [B, K + 1]."""

    log_probs: jax.Array
    entropies: jax.Array
    values: jax.Array


class PpoTraining(GradientTask):
    """A training by PPO of the agent of `objective`, which never says the token `pad`."""

    config: TextConfig
    title, unit, criterion = "train text agent by PPO", "episodes", "games/negative_return"
    target: Mapping[str, Any] = {}
    # (The agent's parameters, step) -> the episodes of that step, leaves [1, B, ...].
    rollouts: Callable[[Any, int], EpisodeBatch]
    # (The agent's parameters) -> measures of evaluation episodes, which have the same seeds each time.
    play: Callable[[Any], Mapping[str, float]]

    def __init__(
        self,
        config: TextConfig,
        objective: Objective,
        start: Start,
        pad: int,
        data: TrainingData,
        parallel: DataParallel,
    ) -> None:
        settings, width = config.ppo, objective.agent.model.config.width
        heads = Heads(width, {V: HeadConfig(1, (2 * width,), constant=0.0)}, objective.agent.dtype)
        learned = {**start.learned, VALUE: jax.device_get(heads.init(key_of(config.seed, VALUE)))}
        frozen = dict(start.frozen)
        if settings.kl.coefficient and objective.spec is None:
            frozen[REFERENCE] = start.learned["trunks"]
        updates = config.max_steps * settings.epochs * settings.minibatches
        # Each device deals its own episodes into minibatches.
        super().__init__(config, (learned, frozen), data, parallel, True, updates)
        self.objective, self._heads, self._pad = objective, heads, pad
        self.steps = config.max_steps
        self._controller = kl_penalty.Controller(settings.kl.target, settings.kl.horizon)
        self._key = key_of(config.seed, "minibatches")

    def init_state(self) -> PpoState:
        return PpoState(*self.start(), np.float32(self.config.ppo.kl.coefficient))

    def batches_for(self, state: PpoState, shared: Any, first: int, count: int) -> EpisodeBatch:
        assert count == 1
        return self.rollouts(self._agent(state, shared), first)

    def batch_axes(self, batches: EpisodeBatch) -> int:
        return 1

    def _agent(self, state: PpoState, shared: Any) -> dict[str, Any]:
        one = self.parallel.acting((state.params, shared or {}))
        return agent_start.whole(self.objective, one[0], {}, one[1])

    def look(self, learned: Any, frozen: Any, batch: TextBatch, plain: bool = False) -> TokenEstimates:
        """Outputs of policy and value for dialogues; `plain`: without low-rank additions."""
        agent, spec = self.objective.agent, None if plain else self.objective.spec
        params, additions = joined(learned, frozen)
        given = (params, batch.tokens, batch.valid, (POLICY,))
        states = agent.run(*given, additions=additions, spec=spec)[POLICY].after

        def of_rows(rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            logits = agent.logits(params, rows[0], additions, spec).astype(jnp.float32)
            logits = decoding.without(logits, self._pad)
            return token_log_probs(logits, rows[1]), ppo.entropy(logits)

        tokens, shape = next_tokens(batch), batch.actions.shape
        acting = chosen_states(states, batch.actions).reshape(-1, states.shape[-1])
        log_probs, entropies = in_chunks(of_rows, (acting, tokens.reshape(-1)), self.objective.chunk)
        values = jnp.zeros(batch.states.shape)
        if VALUE in learned:
            read = chosen_states(states, batch.states)
            if "v" in self.objective.detach:
                read = jax.lax.stop_gradient(read)
            values = self._heads.apply(learned[VALUE], V, read)
        return TokenEstimates(log_probs.reshape(shape), entropies.reshape(shape), values)

    def _looked(self, learned: Any, frozen: Any, batch: TextBatch, plain: bool = False) -> TokenEstimates:
        """As `look`, for a whole batch without gradient, in the memory of a micro-batch."""
        parts = self.config.ppo.minibatches * self.config.accumulate
        split = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), batch)
        found = jax.lax.map(lambda part: self.look(learned, frozen, part, plain), split)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)

    def step(
        self, state: PpoState, shared: Any, batch: EpisodeBatch
    ) -> tuple[PpoState, dict[str, jax.Array]]:
        settings, frozen, dialogues = self.config.ppo, shared or {}, batch.dialogues
        dialogues = dialogues._replace(rewards=dialogues.rewards / self.config.method.reward_scale)
        values = self._looked(state.params, frozen, dialogues).values
        rewards, reference = self._penalised(state, frozen, batch._replace(dialogues=dialogues))
        discount = self.config.method.discount
        found = token_ppo.targets(dialogues, rewards, values, discount, settings.gae_lambda)
        live, advantage = dialogues.live, found.advantage
        metrics = {"value/mean": reductions.mean(values[:, :-1], live, AXIS), **reference}
        metrics["advantage/mean"], metrics["advantage/std"] = reductions.mean_and_std(advantage, live, AXIS)
        if settings.normalise_advantage:
            advantage = ppo.normalised(advantage, live, AXIS)
        tokens = next_tokens(dialogues)
        samples = ppo.Samples(tokens, batch.log_probs, values[:, :-1], advantage, found.value, live)
        learned, opt_state, more = self._learn(state, frozen, dialogues, samples)
        episodes = jnp.ones(dialogues.returns.shape, bool)
        metrics |= {
            **more,
            _RETURN: reductions.mean(dialogues.returns, episodes, AXIS),
            "episode/actions": reductions.mean(batch.utterances, episodes, AXIS),
            "batch/tokens": reductions.total(live.astype(jnp.float32), AXIS),
        }
        coefficient = state.kl_coefficient
        if reference:
            actions = reductions.total(batch.utterances, AXIS)
            coefficient = self._controller.adapted(coefficient, reference["reference/kl"], actions)
        return PpoState(learned, opt_state, state.step + 1, coefficient), metrics

    def _penalised(
        self, state: PpoState, frozen: Any, batch: EpisodeBatch
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The rewards [B, K] with the penalty, and its metrics; without a coefficient no penalty and no metrics."""
        dialogues = batch.dialogues
        if not self.config.ppo.kl.coefficient:
            return dialogues.rewards, {}
        learned = {"trunks": frozen[REFERENCE]} if REFERENCE in frozen else {}
        reference = self._looked(learned, frozen, dialogues, plain=True).log_probs
        kl = jnp.where(dialogues.live, batch.log_probs - reference, 0.0)
        added = kl_penalty.penalty(batch.log_probs, reference, state.kl_coefficient)
        utterances = jnp.maximum(reductions.total(batch.utterances, AXIS), 1.0)
        metrics = {
            "reference/kl": reductions.total(kl, AXIS) / utterances,
            "reference/kl_token": reductions.mean(kl, dialogues.live, AXIS),
            "reference/coefficient": state.kl_coefficient,
        }
        return dialogues.rewards + jnp.where(dialogues.live, added, 0.0), metrics

    def _learn(
        self, state: PpoState, frozen: Any, dialogues: TextBatch, samples: ppo.Samples
    ) -> tuple[Any, Any, dict[str, jax.Array]]:
        settings, rows = self.config.ppo, len(samples.valid)
        frozen = block_stack.arranged(frozen)
        key = jax.random.fold_in(jax.random.fold_in(self._key, state.step), jax.lax.axis_index(AXIS))
        order = ppo.minibatches(key, rows, rows // settings.minibatches, settings.epochs)

        def minibatch(carry: tuple[Any, Any], chosen: jax.Array) -> tuple[tuple[Any, Any], Any]:
            learned, opt_state = block_stack.arranged(carry)
            some = jax.tree.map(lambda x: jnp.take(x, chosen, axis=0), (dialogues, samples))
            gradient, metrics = self._gradient(learned, frozen, *some)
            updates, opt_state = self.optimizer.update(gradient, opt_state, learned)
            metrics["optimizer/gradient_norm"] = optax.tree.norm(gradient)
            metrics["optimizer/learning_rate"] = opt_state[-1].rate
            return block_stack.unstacked((optax.apply_updates(learned, updates), opt_state)), metrics

        flat = order.reshape(-1, order.shape[-1])
        (learned, opt_state), metrics = jax.lax.scan(minibatch, (state.params, state.opt_state), flat)
        return learned, opt_state, update.joined(metrics)

    def _gradient(
        self, learned: Any, frozen: Any, dialogues: TextBatch, samples: ppo.Samples
    ) -> tuple[Any, dict[str, jax.Array]]:
        """The gradient of a minibatch's mean loss a token, added over micro-batches, and its metrics."""
        settings, accumulate = self.config.ppo, self.config.accumulate
        count = jnp.maximum(reductions.total(samples.valid.astype(jnp.float32), AXIS), 1.0)
        parts = jax.tree.map(lambda x: x.reshape(accumulate, -1, *x.shape[1:]), (dialogues, samples))

        def loss(learned: Any, part: tuple[TextBatch, ppo.Samples]) -> tuple[jax.Array, ppo.StepLosses]:
            look = self.look(learned, frozen, part[0])
            now = (look.log_probs, look.entropies, look.values[:, :-1])
            (log_probs, entropies, values), some = jax.tree.map(lambda x: x.reshape(-1), (now, part[1]))
            clips = (settings.clip_ratio, settings.clip_value)
            rows = ppo.rows_of(log_probs, entropies, values, some, *clips)
            each = ppo.combine(rows, settings.value_coefficient, settings.entropy_coefficient)
            return jnp.sum(jnp.where(some.valid, each, 0.0)) / count, rows

        def add(total: Any, part: Any) -> tuple[Any, ppo.StepLosses]:
            gradient, rows = jax.grad(loss, has_aux=True)(learned, part)
            return jax.tree.map(jnp.add, total, gradient), rows

        gradient, rows = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, learned), parts)
        rows = jax.tree.map(lambda x: x.reshape(-1), rows)
        valid = parts[1].valid.reshape(-1)
        return jax.lax.psum(gradient, AXIS), ppo.describe(rows, valid, settings.clip_ratio, AXIS)

    def shown(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {"return": sums[_RETURN] / sums["steps"]} if sums.get("steps") else {}

    def logged(self, metrics: Mapping[str, np.ndarray], seconds: float) -> dict[str, float]:
        chosen: dict[Any, Callable[..., Any]] = {jnp.min: np.min, jnp.max: np.max}
        row = {name: float(chosen.get(update.EXTREMES.get(name), np.mean)(x)) for name, x in metrics.items()}
        return row | {"throughput/tokens_per_second": float(metrics["batch/tokens"].sum()) / seconds}

    def evaluate(self, state: PpoState, shared: Any, position: TrainingPosition) -> Evaluation:
        played = dict(self.play(self._agent(state, shared)))
        row: dict[str, Any] = {self.criterion: -played["games/return"], **played}
        row |= {
            name: position.mean(name) for name in position.sums if name not in {"steps", *update.EXTREMES}
        }
        row["train/episodes"] = self.units(position.step)
        shown = f"return {played['games/return']:.4f} ({self.config.games.episodes} episodes)"
        return Evaluation(row, {}, f"step {position.step:,}: {shown}")
