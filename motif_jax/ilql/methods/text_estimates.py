"""Runs an agent's networks over a batch of dialogues: the estimates from which a method's losses
are computed.

Heads are as wide as the vocabulary and cost more than the trunk. So they are computed at the
positions of actions alone, target Qs of the action's token alone, and outputs for all tokens in
chunks of positions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from motif_jax.ilql.agent.parameter_parts import heads_of, joined
from motif_jax.ilql.agent.text_agent import POLICY, QS, TARGET, VALUES, TextAgentNetwork, V
from motif_jax.ilql.methods import implicit_q, proposal_estimates
from motif_jax.ilql.methods.chosen_states import chosen_states, states_at
from motif_jax.ilql.methods.implicit_q import (
    ActionQ,
    Estimates,
    ImplicitQSettings,
    TextBatch,
    Weights,
)
from motif_jax.ilql.methods.text_methods import Rule
from motif_jax.lm import lora
from motif_jax.lm.generation import token_log_probs
from motif_jax.lm.network import States
from motif_jax.lm.scoring import in_chunks
from motif_jax.nets import distributions

# Names of the heads' dropout keys, beside those of trunks.
_HEADS, _TARGET_HEADS = "heads", "target_heads"


@dataclasses.dataclass(frozen=True)
class Estimator:
    """Which networks a method runs, and how."""

    agent: TextAgentNetwork
    rule: Rule
    settings: ImplicitQSettings
    weights: Weights  # of terms; what only terms of weight 0 need is not computed
    # parts ('v', 'q', 'policy') whose gradient does not reach the trunk
    detach: tuple[str, ...] = ()
    # low-rank additions are trained in place of trunks; None: trunks are
    spec: lora.Spec | None = None
    # beside low-rank additions the rows of tokens that were added are trained, too
    new_tokens: bool = True
    # positions whose outputs for all tokens are in memory at once; None: all
    chunk: int | None = None
    dropout: bool = False  # whether training uses the model config's dropout
    # also for target and policy's weights (`compat.ilql_target_dropout`)
    target_dropout: bool = False
    # the last action bootstraps from zeros after it (`compat.ilql_next_q_zero`)
    zero_after_last: bool = False
    chai_scores: bool = False  # see `chai.conservative` (`compat.chai_scores`)

    @property
    def learns_policy(self) -> bool:
        return self.weights.policy != 0

    @property
    def weighs(self) -> bool:
        """Whether the policy's weights depend on advantages."""
        # exp(0 A) is 1, so that cloning needs no advantages.
        are_constant = self.settings.exponential and self.settings.beta == 0
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
            # CHAI: the batch has what the policy proposes (`dialogues/candidate_batches.py`).
            return proposal_estimates.estimates(
                self.agent,
                heads_of(learned, frozen),
                frozen["target"]["heads"],
                states[VALUES],
                batch,
                self.settings,
                self.chai_scores,
                self.zero_after_last,
            )

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
        if keys and not self.target_dropout:
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
        """Dropout keys of trained trunks and their heads, and of the target's where
        `target_dropout` is set.
        """
        if key is None or not self.dropout or self.rule.proposes:
            return {}
        roles = self.agent.design.roles
        with_dropout = set()
        if self.weights.trains_values:
            with_dropout |= {VALUES, _HEADS}
        if self.learns_policy:
            with_dropout.add(roles.trunk_of[POLICY])
        if self.target_dropout:
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
        if shares_trunk and TARGET in states and keys and not self.target_dropout:
            # The values' trunk ran with dropout, and the target reads it without.
            states[TARGET] = run((TARGET,), None)[TARGET]

        without_gradient = {TARGET}
        if "policy" in self.detach or not self.learns_policy:
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
            log_probs, entropies = in_chunks(of_rows, rows, self.chunk)
            return log_probs.reshape(tokens.shape), entropies.reshape(tokens.shape)

        after = states[POLICY].after
        if self.settings.context_weight == 0:
            action_states = chosen_states(after, batch.action_token_positions)
            log_probs, entropies = of_tokens(action_states, implicit_q.policy_tokens(batch))
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
        of_states = states_at(states, batch.state_positions, "v" in self.detach)
        return self.agent.heads.apply(heads, V, of_states, _key(key, V))

    def _qs(
        self, heads: Any, states: States, batch: TextBatch, key: jax.Array | None
    ) -> list[ActionQ]:
        """The online Qs at the actions, [B, K] each; Q of all tokens is computed only where a term
        compares them.
        """
        of_actions = states_at(states, batch.action_positions, "q" in self.detach)
        network = self.agent.heads
        names = self.agent.design.qs
        if self.rule.q == "utterance":
            return [
                implicit_q.without_terms(network.apply(heads, name, of_actions, _key(key, name)))
                for name in names
            ]
        actions = implicit_q.action_tokens(batch)
        conservative = self.weights.conservative != 0
        margin = self.weights.margin != 0
        if not (conservative or margin):
            return [
                implicit_q.without_terms(
                    network.chosen(heads, name, of_actions, actions, _key(key, name))
                )
                for name in names
            ]

        def of_rows(rows: tuple[States, jax.Array, jax.Array]) -> list[ActionQ]:
            states, actions, row_indices = rows
            qs = [
                network.apply(heads, name, states, _key(key, name, row_indices)) for name in names
            ]
            return [self.rule.action_q(q, actions, self.settings, conservative, margin) for q in qs]

        row_indices = jnp.arange(actions.size, dtype=jnp.int32).reshape(actions.shape)
        rows = jax.tree.map(
            lambda leaf: leaf.reshape(actions.size, *leaf.shape[2:]),
            (of_actions, actions, row_indices),
        )
        return jax.tree.map(
            lambda leaf: leaf.reshape(actions.shape), in_chunks(of_rows, rows, self.chunk)
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
            actions = implicit_q.action_tokens(batch)
            qs = [
                network.chosen(heads, name, of_actions, actions, _key(key, name)) for name in names
            ]
        return implicit_q.target_of(qs, self.settings)

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
        positions = batch.action_positions if self.zero_after_last else batch.state_positions[:, 1:]
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
            return implicit_q.next_value(
                implicit_q.target_of(qs, self.settings), self.rule.bootstrap, prior
            )

        rows = jax.tree.map(
            lambda leaf: leaf.reshape(positions.size, *leaf.shape[2:]),
            (states_at(states[TARGET], positions), row_indices, prior_states),
        )
        values = in_chunks(of_rows, rows, self.chunk).reshape(positions.shape)
        if not self.zero_after_last:
            return values
        # Published: Q of the action after the last is 0 for every token, whose log sum exp is the
        # log of their number.
        tokens = self.agent.model.config.vocab_size
        after_last = math.log(tokens) if self.rule.bootstrap == "soft" else 0.0
        return implicit_q.values_of_next_action(values, after_last)


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
