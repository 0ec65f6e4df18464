"""PPO of a text agent (`ilql.methods.token_ppo`), as a task of the offline trainer: a step plays
whole episodes and trains on them.

Policy and value share a trunk; the value is a head, which is not part of the agent's folder. The
penalty's reference is the initial policy: the frozen trunk under low-rank additions, else a copy.
Episodes depend on the state and the step's number alone, so that a resumed run ends with the same
bits.
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
from motif_jax.ilql.agent.parameter_parts import joined
from motif_jax.ilql.agent.text_agent import POLICY, V
from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.methods import token_ppo
from motif_jax.ilql.methods.chosen_states import chosen_states
from motif_jax.ilql.methods.implicit_q import TextBatch, policy_tokens
from motif_jax.ilql.methods.text_objective import Objective
from motif_jax.ilql.methods.token_ppo import EpisodeBatch
from motif_jax.lm.chunks import in_chunks
from motif_jax.lm.heads import HeadConfig, Heads
from motif_jax.lm.sampling import token_log_probs
from motif_jax.lm.sums_task import GradientTask, TrainingData
from motif_jax.nets import categorical
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
    """Log-probabilities and entropies of tokens float32 [B, K], and values of states
    float32 [B, K + 1].
    """

    log_probs: jax.Array
    entropies: jax.Array
    values: jax.Array


class PpoTraining(GradientTask):
    """A training by PPO of the agent of `objective`, which never says the token `pad`."""

    config: TextConfig
    title, unit, criterion = "train text agent by PPO", "episodes", "games/negative_return"
    target: Mapping[str, Any] = {}
    # The agent's parameters and the step -> the episodes of that step, leaves [1, B, ...].
    rollouts: Callable[[Any, int], EpisodeBatch]
    # The agent's parameters -> measures of evaluation episodes, which have the same seeds each
    # time.
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
        settings = config.ppo
        width = objective.agent.model.config.width
        # V is 0 everywhere at first, so that the first advantages are of rewards alone.
        heads = Heads(width, {V: HeadConfig(1, (2 * width,), constant=0.0)}, objective.agent.dtype)
        learned = {**start.learned, VALUE: jax.device_get(heads.init(key_of(config.seed, VALUE)))}
        frozen = dict(start.frozen)
        if settings.kl.coefficient and objective.spec is None:
            # Low-rank additions need no copy: without them the trunk is the reference.
            frozen[REFERENCE] = start.learned["trunks"]
        updates = config.max_steps * settings.epochs * settings.minibatches
        # Each device deals its own episodes into minibatches.
        super().__init__(config, (learned, frozen), data, parallel, True, updates)
        self.objective = objective
        self._heads = heads
        self._pad = pad
        self.steps = config.max_steps
        self._controller = kl_penalty.Controller(settings.kl.target, settings.kl.horizon)
        self._key = key_of(config.seed, "minibatches")

    def init_state(self) -> PpoState:
        return PpoState(*self.start(), np.float32(self.config.ppo.kl.coefficient))

    def batches_for(self, state: PpoState, shared: Any, first: int, count: int) -> EpisodeBatch:
        # The trainer asks for one step at a time, which the policy of the step before has to play.
        assert count == 1
        return self.rollouts(self._agent(state, shared), first)

    def batch_axes(self, batches: EpisodeBatch) -> int:
        return 1

    def _agent(self, state: PpoState, shared: Any) -> dict[str, Any]:
        learned, frozen = self.parallel.acting((state.params, shared or {}))
        return agent_start.agent_params(self.objective, learned, {}, frozen)

    def estimates(
        self, learned: Any, frozen: Any, batch: TextBatch, with_additions: bool = True
    ) -> TokenEstimates:
        """Outputs of policy and value for dialogues.

        Args:
          learned: `trunks` or `additions`, and `value`; a reference has no `value`, and its values
              are zeros.
          frozen: the trunks that are not learned.
          batch: B dialogues, in each of which the agent wrote at most K tokens.
          with_additions: whether low-rank additions to the trunk are used.

        Returns:
          Log-probabilities and entropies float32 [B, K], in nats, of tokens without `pad`; values
          float32 [B, K + 1]. Numbers of tokens that do not exist are finite and mean nothing.
        """
        agent = self.objective.agent
        spec = self.objective.spec if with_additions else None
        params, additions = joined(learned, frozen)
        states = agent.run(
            params, batch.tokens, batch.valid, (POLICY,), additions=additions, spec=spec
        )[POLICY].after

        def of_rows(rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            states, tokens = rows
            logits = agent.logits(params, states, additions, spec).astype(jnp.float32)
            logits = decoding.without(logits, self._pad)
            return token_log_probs(logits, tokens), categorical.entropy(logits)

        action_states = chosen_states(states, batch.action_positions).reshape(-1, states.shape[-1])
        rows = (action_states, policy_tokens(batch).reshape(-1))
        log_probs, entropies = in_chunks(of_rows, rows, self.objective.chunk)
        values = jnp.zeros(batch.state_positions.shape)
        if VALUE in learned:  # a reference has none
            # [B, T, D] becomes [B, K + 1, D]: the states before each token, and after the last.
            value_states = chosen_states(states, batch.state_positions)
            if "v" in self.objective.detach:
                value_states = jax.lax.stop_gradient(value_states)
            values = self._heads.apply(learned[VALUE], V, value_states)
        shape = batch.action_positions.shape
        return TokenEstimates(log_probs.reshape(shape), entropies.reshape(shape), values)

    def _batch_estimates(
        self, learned: Any, frozen: Any, batch: TextBatch, with_additions: bool = True
    ) -> TokenEstimates:
        """As `estimates`, for all episodes of a step without gradient, in the memory of a
        micro-batch.
        """
        count = self.config.ppo.minibatches * self.config.accumulate
        parts = jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), batch)
        of_parts = jax.lax.map(
            lambda part: self.estimates(learned, frozen, part, with_additions), parts
        )
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), of_parts)

    def step(
        self, state: PpoState, shared: Any, batch: EpisodeBatch
    ) -> tuple[PpoState, dict[str, jax.Array]]:
        """One update of a device: advantages, then `ppo.epochs` passes of minibatches (Schulman et
        al. 2017, algorithm 1).

        Args:
          shared: frozen parameters.
          batch: this device's B episodes; rewards float32 [B, K] are divided by
              `method.reward_scale` here.

        Returns:
          The state, equal on all devices, and the metrics, float32 scalars: means over the tokens
          of all devices, or over its episodes (`episode/`), or over the minibatches.
        """
        settings = self.config.ppo
        frozen = shared or {}
        scale = self.config.method.reward_scale
        dialogues = batch.dialogues._replace(rewards=batch.dialogues.rewards / scale)
        mask = dialogues.action_mask

        # ADVANTAGES
        # Of the parameters that played, for all epochs: no later minibatch changes its targets.
        values = self._batch_estimates(state.params, frozen, dialogues).values
        rewards, reference = self._penalise(state, frozen, batch._replace(dialogues=dialogues))
        targets = token_ppo.targets(
            dialogues, rewards, values, self.config.method.discount, settings.gae_lambda
        )
        advantage = targets.advantage
        mean, deviation = reductions.mean_and_std(advantage, mask, AXIS)
        metrics = {
            "value/mean": reductions.mean(values[:, :-1], mask, AXIS),
            **reference,
            "advantage/mean": mean,
            "advantage/std": deviation,
        }
        if settings.normalise_advantage:
            # Over the step's tokens of all devices, not by minibatch.
            advantage = ppo.normalised(advantage, mask, AXIS)

        # OPTIMISER STEPS
        samples = ppo.Samples(
            policy_tokens(dialogues),
            batch.log_probs,
            values[:, :-1],
            advantage,
            targets.value,
            mask,
        )
        learned, opt_state, of_minibatches = self._learn(state, frozen, dialogues, samples)

        episodes = jnp.ones(dialogues.returns.shape, bool)
        metrics |= {
            **of_minibatches,
            _RETURN: reductions.mean(dialogues.returns, episodes, AXIS),
            "episode/utterances": reductions.mean(batch.utterances, episodes, AXIS),
            "batch/tokens": reductions.total(mask.astype(jnp.float32), AXIS),
        }
        coefficient = state.kl_coefficient
        if reference:
            utterances = reductions.total(batch.utterances, AXIS)
            # An utterance is one action of the controller, whose horizon counts actions.
            coefficient = self._controller.adapted(
                coefficient, reference["reference/kl"], utterances
            )
        return PpoState(learned, opt_state, state.step + 1, coefficient), metrics

    def _penalise(
        self, state: PpoState, frozen: Any, batch: EpisodeBatch
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The rewards [B, K] with the penalty, and its metrics; without a coefficient no penalty
        and no metrics.
        """
        dialogues = batch.dialogues
        if not self.config.ppo.kl.coefficient:
            return dialogues.rewards, {}
        learned = {"trunks": frozen[REFERENCE]} if REFERENCE in frozen else {}
        reference = self._batch_estimates(
            learned, frozen, dialogues, with_additions=False
        ).log_probs
        # Of sampled tokens: an estimate of KL(pi || pi_ref) without bias.
        kl = jnp.where(dialogues.action_mask, batch.log_probs - reference, 0.0)
        penalties = kl_penalty.penalty(batch.log_probs, reference, state.kl_coefficient)
        utterances = jnp.maximum(reductions.total(batch.utterances, AXIS), 1.0)
        metrics = {
            "reference/kl": reductions.total(kl, AXIS) / utterances,
            "reference/kl_token": reductions.mean(kl, dialogues.action_mask, AXIS),
            "reference/coefficient": state.kl_coefficient,
        }
        return dialogues.rewards + jnp.where(dialogues.action_mask, penalties, 0.0), metrics

    def _learn(
        self, state: PpoState, frozen: Any, dialogues: TextBatch, samples: ppo.Samples
    ) -> tuple[Any, Any, dict[str, jax.Array]]:
        """The parameters and the optimiser's state after all passes over the episodes, and the mean
        metrics of a minibatch.
        """
        settings = self.config.ppo
        episodes = len(samples.valid)
        frozen = block_stack.stacked_for_loop(frozen)
        of_step = jax.random.fold_in(self._key, state.step)
        # each device deals its own episodes
        key = jax.random.fold_in(of_step, jax.lax.axis_index(AXIS))
        order = ppo.minibatches(key, episodes, episodes // settings.minibatches, settings.epochs)

        def minibatch(carry: tuple[Any, Any], chosen: jax.Array) -> tuple[tuple[Any, Any], Any]:
            # The carry keeps the state's form, with blocks apart, between minibatches.
            learned, opt_state = block_stack.stacked_for_loop(carry)
            part = jax.tree.map(lambda leaf: jnp.take(leaf, chosen, axis=0), (dialogues, samples))
            gradient, metrics = self._gradient(learned, frozen, *part)
            updates, opt_state = self.optimizer.update(gradient, opt_state, learned)
            metrics["optimizer/gradient_norm"] = optax.tree.norm(gradient)
            metrics["optimizer/learning_rate"] = opt_state[-1].rate
            return block_stack.unstacked(
                (optax.apply_updates(learned, updates), opt_state)
            ), metrics

        flat = order.reshape(-1, order.shape[-1])
        (learned, opt_state), metrics = jax.lax.scan(
            minibatch, (state.params, state.opt_state), flat
        )
        return learned, opt_state, update.joined(metrics)

    def _gradient(
        self, learned: Any, frozen: Any, dialogues: TextBatch, samples: ppo.Samples
    ) -> tuple[Any, dict[str, jax.Array]]:
        """The gradient of a minibatch's mean loss a token, added over micro-batches, and its
        metrics.
        """
        settings = self.config.ppo
        accumulate = self.config.accumulate
        # Tokens of the minibatch on all devices: the gradients of devices are added, not averaged.
        tokens = jnp.maximum(reductions.total(samples.valid.astype(jnp.float32), AXIS), 1.0)
        parts = jax.tree.map(
            lambda leaf: leaf.reshape(accumulate, -1, *leaf.shape[1:]), (dialogues, samples)
        )

        def loss(
            learned: Any, part: tuple[TextBatch, ppo.Samples]
        ) -> tuple[jax.Array, ppo.StepLosses]:
            batch, of_batch = part
            estimates = self.estimates(learned, frozen, batch)
            of_batch = jax.tree.map(lambda leaf: leaf.reshape(-1), of_batch)
            terms = ppo.step_losses(
                estimates.log_probs.reshape(-1),
                estimates.entropies.reshape(-1),
                estimates.values[:, :-1].reshape(-1),
                of_batch,
                settings.clip_ratio,
                settings.clip_value,
            )
            losses = ppo.combine(terms, settings.value_coefficient, settings.entropy_coefficient)
            return jnp.sum(jnp.where(of_batch.valid, losses, 0.0)) / tokens, terms

        def add(total: Any, part: Any) -> tuple[Any, ppo.StepLosses]:
            gradient, terms = jax.grad(loss, has_aux=True)(learned, part)
            return jax.tree.map(jnp.add, total, gradient), terms

        gradient, terms = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, learned), parts)
        terms = jax.tree.map(lambda x: x.reshape(-1), terms)
        valid = parts[1].valid.reshape(-1)
        return jax.lax.psum(gradient, AXIS), ppo.describe(terms, valid, settings.clip_ratio, AXIS)

    def shown(self, sums: Mapping[str, float]) -> dict[str, float]:
        if not sums.get("steps"):
            return {}
        return {"return": sums[_RETURN] / sums["steps"]}

    def logged(self, metrics: Mapping[str, np.ndarray], seconds: float) -> dict[str, float]:
        extremes: dict[Any, Callable[..., Any]] = {jnp.min: np.min, jnp.max: np.max}
        row = {}
        for name, numbers in metrics.items():
            reduce = extremes.get(update.EXTREMES.get(name), np.mean)
            row[name] = float(reduce(numbers))
        row["throughput/tokens_per_second"] = float(metrics["batch/tokens"].sum()) / seconds
        return row

    def evaluate(self, state: PpoState, shared: Any, position: TrainingPosition) -> Evaluation:
        games = dict(self.play(self._agent(state, shared)))
        # The trainer keeps the evaluation with the smallest criterion.
        row: dict[str, Any] = {self.criterion: -games["games/return"], **games}
        for name in position.sums:
            if name != "steps" and name not in update.EXTREMES:
                row[name] = position.mean(name)
        row["train/episodes"] = self.units(position.step)
        text = f"return {games['games/return']:.4f} ({self.config.games.episodes} episodes)"
        return Evaluation(row, {}, f"step {position.step:,}: {text}")
