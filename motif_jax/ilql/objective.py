"""The loss of a method on dialogues: runs the agent's networks over a batch, passes their estimates
to `Rule.losses` (methods.py), and weights the terms.

Heads are as wide as the vocabulary and cost more than the trunk. So they are computed at the
positions of actions alone, target Qs of the action's token alone, and outputs for all tokens in
chunks of positions.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.core.training.gradient_sums import Spread, spread
from motif_jax.ilql import methods
from motif_jax.ilql.agent.text_agent import (
    POLICY,
    QS,
    TARGET,
    VALUES,
    TextAgentNetwork,
    V,
    running_mean,
)
from motif_jax.ilql.config import LossWeights, PolicyWeights, TextConfig
from motif_jax.ilql.methods import ActionQ, Counts, Estimates, Rule, TextBatch, rule_of
from motif_jax.lm import finetune_params, lora
from motif_jax.lm.generation import token_log_probs
from motif_jax.lm.network import States
from motif_jax.lm.scoring import in_chunks
from motif_jax.nets import distributions

# Names of the heads' dropout keys, beside those of trunks.
_HEADS, _TARGET_HEADS = "heads", "target_heads"


class CountedBatch(NamedTuple):
    """A micro-batch, and the denominators of its sums, float32 scalars, which are those of the
    whole batch.
    """

    batch: TextBatch
    counts: Counts


class LossTerms(NamedTuple):
    """The loss of a micro-batch and its terms, divided but not weighted; float32 scalars."""

    loss: jax.Array
    q: jax.Array
    v: jax.Array
    conservative: jax.Array
    margin: jax.Array
    policy: jax.Array


class MeasuredLoss(NamedTuple):
    """The terms of a micro-batch, and statistics of the numbers behind them, see
    `value_spreads.spreads`.
    """

    terms: LossTerms
    spreads: dict[str, Spread]

    @property
    def loss(self) -> jax.Array:
        return self.terms.loss


@dataclasses.dataclass(frozen=True)
class Objective:
    """The loss of a config's method: `config.method` has its numbers, `config.loss` the weights of
    its terms, `config.compat` its quirks.
    """

    config: TextConfig
    agent: TextAgentNetwork

    @functools.cached_property
    def rule(self) -> Rule:
        """The method's choices and losses."""
        return rule_of(self.config.method.name)

    @functools.cached_property
    def weights(self) -> LossWeights:
        """Weights of the terms; what only terms of weight 0 need is not computed."""
        return self.rule.weights(self.config.loss)

    @functools.cached_property
    def spec(self) -> lora.Spec | None:
        """The low-rank additions that are trained in place of trunks; None: trunks are."""
        return finetune_params.spec_of(self.config.lora)

    def terms(
        self, learned: Any, frozen: Any, part: CountedBatch, key: jax.Array | None
    ) -> LossTerms:
        """The loss of a micro-batch; see `measured`."""
        return self.measured(learned, frozen, part, key).terms

    def measured(
        self, learned: Any, frozen: Any, part: CountedBatch, key: jax.Array | None
    ) -> MeasuredLoss:
        """The loss of a micro-batch with its terms and spreads, for `gradient_sums.gradient_sums`.

        Args:
          learned, frozen: see `agent_start.Start`; `frozen` has the targets as `target`.
          part: the micro-batch, and the counts of the whole batch.
          key: of dropout; None: no dropout.
        """
        batch, counts = part
        method = self.config.method
        if method.reward_scale != 1:
            # Rewards alone: the returns of a decision transformer stay in units of the data.
            batch = batch._replace(rewards=batch.rewards / method.reward_scale)

        # RUN THE NETWORKS
        estimates = self.estimates(learned, frozen, batch, key)

        # LOSSES OF THE METHOD
        sums = self.rule.losses(batch, estimates, method)

        # Values learn from actions, the policy from tokens; a batch may have neither.
        actions = jnp.maximum(counts.actions, 1.0)
        policy_tokens = jnp.maximum(counts.policy, 1.0)
        means = {
            "q": sums.q / actions,
            "v": sums.v / actions,
            "conservative": sums.conservative / actions,
            "margin": sums.margin / actions,
            "policy": sums.policy / policy_tokens,
        }
        loss = jnp.zeros(())
        for name, weight in self.weights.of_terms.items():
            loss += weight * means[name]
        return MeasuredLoss(
            LossTerms(loss=loss, **means), value_spreads(batch, estimates, method.policy)
        )

    def counts(self, batch: TextBatch) -> Counts:
        """The denominators of a part of a batch, see `methods.counts`."""
        return methods.counts(
            batch, self.config.method.policy, self.config.compat.ilql_policy_loss_norm
        )

    @property
    def learns_policy(self) -> bool:
        return self.weights.policy != 0

    @property
    def weighs(self) -> bool:
        """Whether the policy's weights depend on advantages."""
        # exp(0 A) is 1, so that cloning needs no advantages.
        policy = self.config.method.policy
        are_constant = policy.exponential and policy.beta == 0
        return self.rule.q != "none" and self.learns_policy and not are_constant

    def estimates(
        self, learned: Any, frozen: Any, batch: TextBatch, key: jax.Array | None
    ) -> Estimates:
        """The networks' outputs on a batch, as far as the method's losses need them.

        Args:
          learned: `trunks` (or `additions` to them), `heads`, `prefix`.
          frozen: `trunks`, and `target` with `trunks` or `additions`, and `heads`.
          key: of dropout; None: no dropout.
        """
        params, additions = joined(learned, frozen)
        keys = self._keys(key)
        states = self._run(params, additions, batch, keys, self._parts())
        if self.rule.proposes:
            # CHAI: the batch has what the policy proposes (chai_candidates.py).
            heads = heads_of(learned, frozen)
            return self._proposal_estimates(heads, frozen["target"]["heads"], states[VALUES], batch)

        log_probs, context, entropies = self._log_probs(params, additions, states, batch)
        estimates = Estimates(values=None, qs=[], target_q=None, next_values=None, log_probs=None)
        if self._uses_values:
            estimates = self._value_estimates(learned, frozen, states, batch, keys)
            if self.rule.prior_reward:
                # r + log pi(a): Q's error does not train the policy.
                assert log_probs is not None
                estimates = estimates._replace(added_rewards=jax.lax.stop_gradient(log_probs))
        # Otherwise the policy ran for the values alone.
        if self.learns_policy:
            estimates = estimates._replace(
                log_probs=log_probs, context_log_probs=context, entropies=entropies
            )
        return estimates

    @property
    def _uses_values(self) -> bool:
        return self.rule.q != "none" and (self.weights.trains_values or self.weighs)

    def _value_estimates(
        self,
        learned: Any,
        frozen: Any,
        states: Mapping[str, States],
        batch: TextBatch,
        keys: Mapping[str, jax.Array],
    ) -> Estimates:
        """V, Qs, target Qs and the bootstrap of Q; advantages where the policy's weights depend on
        them.
        """
        heads = heads_of(learned, frozen)
        target_heads = frozen["target"]["heads"]
        values = self._values(heads, states[VALUES], batch, keys.get(_HEADS))
        qs = self._qs(heads, states[VALUES], batch, keys.get(_HEADS))
        target_q = self._target_q(target_heads, states[TARGET], batch, keys.get(_TARGET_HEADS))
        if self.rule.bootstrap == "value":
            # V before the next action: the environment's utterance between two actions is skipped.
            next_values = values[:, 1:]
        else:
            params, additions = joined(learned, frozen)
            next_values = self._bootstrap(
                params, additions, target_heads, states, batch, keys.get(_TARGET_HEADS)
            )
        next_values = jax.lax.stop_gradient(next_values)
        advantages = None
        if self.weighs:
            advantages = self._advantages(learned, frozen, target_q, values, batch, keys)
        return Estimates(
            values=values,
            qs=qs,
            target_q=target_q,
            next_values=next_values,
            log_probs=None,
            advantages=advantages,
        )

    def _advantages(
        self,
        learned: Any,
        frozen: Any,
        target_q: jax.Array,
        values: jax.Array,
        batch: TextBatch,
        keys: Mapping[str, jax.Array],
    ) -> jax.Array:
        """Target Q less V of each action, float32 [B, K]; V is computed again without dropout where
        `values` had it.
        """
        if keys and not self.config.compat.ilql_target_dropout:
            params, additions = joined(learned, frozen)
            without_dropout = self._run(params, additions, batch, {}, (VALUES,))
            values = self._values(heads_of(learned, frozen), without_dropout[VALUES], batch, None)
        return target_q - values[:, :-1]

    def _parts(self) -> tuple[str, ...]:
        """The parts of the agent that the losses need."""
        if self.rule.proposes:
            return (VALUES,)
        parts: tuple[str, ...] = ()
        if self.learns_policy or self.rule.prior_reward or self.rule.bootstrap == "prior":
            parts += (POLICY,)
        if self._uses_values:
            parts += (VALUES, TARGET)
        return parts

    def _keys(self, key: jax.Array | None) -> dict[str, jax.Array]:
        """Dropout keys of trained trunks and their heads, and of the target's with
        `compat.ilql_target_dropout`.
        """
        if key is None or not self.config.dropout or self.rule.proposes:
            return {}
        roles = self.agent.design.roles
        with_dropout = set()
        if self.weights.trains_values:
            with_dropout |= {VALUES, _HEADS}
        if self.learns_policy:
            with_dropout.add(roles.trunk_of[POLICY])
        if self.config.compat.ilql_target_dropout:
            with_dropout |= {TARGET, _TARGET_HEADS}
        # Every name has its number, so that a key does not depend on which others are used.
        names = (*roles.trunks, _HEADS, _TARGET_HEADS)
        return {
            name: jax.random.fold_in(key, i) for i, name in enumerate(names) if name in with_dropout
        }

    def _run(
        self,
        params: Any,
        additions: Any,
        batch: TextBatch,
        keys: Mapping[str, jax.Array],
        parts: tuple[str, ...],
    ) -> dict[str, States]:
        """States by part; those of targets, and of a policy that is not trained, have no
        gradient.
        """

        def run(
            parts: tuple[str, ...], dropout: Mapping[str, jax.Array] | None
        ) -> dict[str, States]:
            return self.agent.run(
                params,
                batch.tokens,
                batch.valid,
                parts,
                batch.returns,
                additions,
                self.spec,
                dropout,
            )

        states = run(parts, keys)
        shares_trunk = self.agent.design.roles.trunk_of.get(TARGET) != TARGET
        if (
            shares_trunk
            and TARGET in states
            and keys
            and not self.config.compat.ilql_target_dropout
        ):
            # The values' trunk ran with dropout, and the target reads it without.
            states[TARGET] = run((TARGET,), None)[TARGET]

        without_gradient = {TARGET}
        if self.config.method.detach_policy or not self.learns_policy:
            without_gradient.add(POLICY)
        for part in without_gradient & states.keys():
            states[part] = jax.lax.stop_gradient(states[part])
        return states

    def _log_probs(
        self, params: Any, additions: Any, states: Mapping[str, States], batch: TextBatch
    ) -> tuple[jax.Array | None, jax.Array | None, jax.Array | None]:
        """Log-probabilities of the actions' tokens [B, A], of all tokens but the first [B, T - 1]
        (None with weight 0), entropies [B, A].

        All are None where the policy does not run.
        """
        if POLICY not in states:
            return None, None, None

        def of_rows(rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            states, tokens = rows
            logits = self.agent.logits(params, states, additions, self.spec)
            # Entropies are measured, not trained.
            without_gradient = jax.lax.stop_gradient(logits.astype(jnp.float32))
            return token_log_probs(logits, tokens), distributions.categorical_entropy(
                without_gradient
            )

        def of_tokens(states: jax.Array, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
            rows = (states.reshape(-1, states.shape[-1]), tokens.reshape(-1))
            log_probs, entropies = in_chunks(of_rows, rows, self.config.logits_chunk)
            return log_probs.reshape(tokens.shape), entropies.reshape(tokens.shape)

        after = states[POLICY].after
        if self.config.method.policy.context_weight == 0:
            action_states = chosen_states(after, batch.action_token_positions)
            log_probs, entropies = of_tokens(action_states, methods.policy_tokens(batch))
            return log_probs, None, entropies
        context, entropies = of_tokens(after[:, :-1], batch.tokens[:, 1:])
        # Position t of `context` predicts token t + 1. [B, T - 1] becomes [B, A].
        positions = jnp.minimum(batch.action_token_positions, context.shape[1] - 1)
        log_probs = jnp.take_along_axis(context, positions, axis=1)
        entropies = jnp.take_along_axis(entropies, positions, axis=1)
        return log_probs, context, entropies

    def _values(
        self, heads: Any, states: States, batch: TextBatch, key: jax.Array | None
    ) -> jax.Array:
        """V of every state, float32 [B, K + 1]."""
        of_states = states_at(states, batch.state_positions, self.config.method.detach_v)
        return self.agent.heads.apply(heads, V, of_states, _key(key, V))

    def _qs(
        self, heads: Any, states: States, batch: TextBatch, key: jax.Array | None
    ) -> list[ActionQ]:
        """The online Qs at the actions, [B, K] each; Q of all tokens is computed only where a term
        compares them.
        """
        of_actions = states_at(states, batch.action_positions, self.config.method.detach_q)
        network = self.agent.heads
        names = self.agent.design.qs
        if self.rule.q == "utterance":
            return [
                methods.without_terms(network.apply(heads, name, of_actions, _key(key, name)))
                for name in names
            ]
        actions = methods.action_tokens(batch)
        conservative = self.weights.cql != 0
        margin = self.weights.margin != 0
        if not (conservative or margin):
            return [
                methods.without_terms(
                    network.chosen(heads, name, of_actions, actions, _key(key, name))
                )
                for name in names
            ]

        def of_rows(rows: tuple[States, jax.Array, jax.Array]) -> list[ActionQ]:
            states, actions, row_indices = rows
            qs = [
                network.apply(heads, name, states, _key(key, name, row_indices)) for name in names
            ]
            return [
                self.rule.action_q(q, actions, self.config.method, conservative, margin) for q in qs
            ]

        row_indices = jnp.arange(actions.size, dtype=jnp.int32).reshape(actions.shape)
        rows = jax.tree.map(
            lambda leaf: leaf.reshape(actions.size, *leaf.shape[2:]),
            (of_actions, actions, row_indices),
        )
        return jax.tree.map(
            lambda leaf: leaf.reshape(actions.shape),
            in_chunks(of_rows, rows, self.config.logits_chunk),
        )

    def _target_q(
        self, heads: Any, states: States, batch: TextBatch, key: jax.Array | None
    ) -> jax.Array:
        """The smaller target Q of each action, clipped, float32 [B, K]."""
        of_actions = states_at(states, batch.action_positions)
        network = self.agent.target_heads
        names = self.agent.design.qs
        if self.rule.q == "utterance":
            qs = [network.apply(heads, name, of_actions, _key(key, name)) for name in names]
        else:
            actions = methods.action_tokens(batch)
            qs = [
                network.chosen(heads, name, of_actions, actions, _key(key, name)) for name in names
            ]
        return methods.target_of(qs, self.config.method)

    def _bootstrap(
        self,
        params: Any,
        additions: Any,
        heads: Any,
        states: Mapping[str, States],
        batch: TextBatch,
        key: jax.Array | None,
    ) -> jax.Array:
        """Values of the next states from the target Qs of all tokens, float32 [B, K]."""
        network = self.agent.target_heads
        names = self.agent.design.qs
        # Published: at the action's own position, and shifted by one action below.
        positions = (
            batch.action_positions
            if self.config.compat.ilql_next_q_zero
            else batch.state_positions[:, 1:]
        )
        row_indices = jnp.arange(positions.size, dtype=jnp.int32).reshape(positions.shape)
        prior_states = None
        if self.rule.bootstrap == "prior":
            prior_states = chosen_states(states[POLICY].after, positions)

        def of_rows(rows: tuple[States, jax.Array, jax.Array | None]) -> jax.Array:
            states, row_indices, prior_states = rows
            qs = [
                network.apply(heads, name, states, _key(key, name, row_indices)) for name in names
            ]
            prior = None
            if prior_states is not None:
                prior = self.agent.logits(params, prior_states, additions, self.spec)
            return methods.next_value(
                methods.target_of(qs, self.config.method), self.rule.bootstrap, prior
            )

        rows = jax.tree.map(
            lambda leaf: leaf.reshape(positions.size, *leaf.shape[2:]),
            (states_at(states[TARGET], positions), row_indices, prior_states),
        )
        values = in_chunks(of_rows, rows, self.config.logits_chunk).reshape(positions.shape)
        if not self.config.compat.ilql_next_q_zero:
            return values
        # Published: Q of the action after the last is 0 for every token, whose log sum exp is the
        # log of their number.
        tokens = self.agent.model.config.vocab_size
        after_last = math.log(tokens) if self.rule.bootstrap == "soft" else 0.0
        return methods.values_of_next_action(values, after_last)

    def _proposal_estimates(
        self, heads: Any, target_heads: Any, states: States, batch: TextBatch
    ) -> Estimates:
        """CHAI: Q of the mean states of actions in the data, and of actions that the policy
        proposes.
        """
        compat = self.config.compat
        candidates = batch.candidates
        means = chosen_states(running_mean(states.after, batch.valid), batch.action_positions)
        # [B, K + 1, N, D]: the first K states propose for the conservative term, the last K for
        # Q's bootstrap.
        count, width = candidates.states.shape[2:]
        noise = methods.random_states(
            candidates.seeds, batch.action_positions.shape[1], count, width
        )

        qs = []
        network = self.agent.heads
        for name in self.agent.design.qs:
            q = network.apply(heads, name, means)
            q_candidates = network.apply(heads, name, candidates.states[:, :-1])
            q_noise = network.apply(heads, name, noise)
            conservative = methods.conservative_of_candidates(
                q, q_candidates, candidates.log_probs[:, :-1], q_noise, width, compat.chai_scores
            )
            qs.append(ActionQ(q, conservative, jnp.zeros_like(q)))

        next_states = candidates.states[:, 1:]
        next_qs = [
            self.agent.target_heads.apply(target_heads, name, next_states)
            for name in self.agent.design.qs
        ]
        best = methods.target_of(next_qs, self.config.method).max(axis=-1)
        if compat.ilql_next_q_zero:
            # Published: 0 after the last action, by the mask of the action after each.
            best = best * methods.values_of_next_action(batch.action_mask.astype(jnp.float32))
        return Estimates(
            values=None,
            qs=qs,
            target_q=None,
            next_values=jax.lax.stop_gradient(best),
            log_probs=None,
        )


def _key(
    key: jax.Array | None, name: str, row_indices: jax.Array | None = None
) -> jax.Array | None:
    """The dropout key of a head; of a chunk of positions where `row_indices` int32 [rows] says
    which, so that no two chunks drop alike.
    """
    if key is None:
        return None
    of_head = jax.random.fold_in(key, (V, *QS).index(name))
    if row_indices is None:
        return of_head
    return jax.random.fold_in(of_head, row_indices[0])


def chosen_states(states: jax.Array, positions: jax.Array) -> jax.Array:
    """The states [B, T, D] at `positions` int32 [B, K]: [B, K, D]."""
    return jnp.take_along_axis(states, positions[..., None], axis=1)


def states_at(states: States, positions: jax.Array, detach: bool = False) -> States:
    """All of the states at `positions` int32 [B, K], without gradient if `detach`."""
    at = States(*(chosen_states(leaf, positions) for leaf in states))
    return jax.lax.stop_gradient(at) if detach else at


def value_spreads(
    batch: TextBatch, estimates: Estimates, policy: PolicyWeights
) -> dict[str, Spread]:
    """Means and ranges of the losses' inputs over the actions that count; absent where the method
    has none.
    """
    mask = batch.action_mask
    of_inputs = {}
    if estimates.qs:
        q = jnp.stack([of_action.chosen for of_action in estimates.qs])
        of_inputs["q"] = spread(q, jnp.broadcast_to(mask, q.shape))
    advantages = estimates.advantages
    if estimates.values is not None and estimates.target_q is not None:
        values = estimates.values[:, :-1]
        of_inputs["v"] = spread(values, mask)
        of_inputs["target_q"] = spread(estimates.target_q, mask)
        # Where the policy is weighted, the advantages are those of its weights, without dropout.
        differences = estimates.target_q - values if advantages is None else advantages
        of_inputs["advantage"] = spread(differences, mask)
    if advantages is not None:
        of_inputs["policy_weight"] = spread(methods.policy_weights(advantages, policy), mask)
    if estimates.entropies is not None:
        of_inputs["entropy"] = spread(estimates.entropies, methods.taught_tokens(batch))
    return of_inputs


def joined(learned: Any, frozen: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The agent's trunks and prefix, and the additions to each trunk, from trained, frozen and
    target parameters.
    """
    # While networks run, a target is a trunk as any other. With low-rank additions its base is
    # among the frozen trunks.
    target = frozen.get("target") or {}
    trunks = {**frozen.get("trunks", {}), **learned.get("trunks", {}), **target.get("trunks", {})}
    additions = {**learned.get("additions", {}), **target.get("additions", {})}
    params = {"trunks": trunks}
    if "prefix" in learned:
        params["prefix"] = learned["prefix"]
    return params, additions


def heads_of(learned: Any, frozen: Any) -> Any:
    """The heads of Q and V, which are frozen where no loss trains them; None for an agent without
    values.
    """
    return learned.get("heads", frozen.get("heads"))
