"""The loss of a method: runs an agent's networks over a batch of dialogues and passes their estimates to `Rule.losses`.

Heads are as wide as the vocabulary and cost more than the trunk. So they are computed at the positions of actions alone, target Qs of the
action's token alone, and outputs for all tokens in chunks of positions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.core.training.spread import Spread
from motif_jax.ilql.agent.text_agent import POLICY, QS, TARGET, VALUES, TextAgentNetwork, V, running_mean
from motif_jax.ilql.methods import chai, implicit_q
from motif_jax.ilql.methods.implicit_q import ActionQ, Counts, Estimates, ImplicitQSettings, TextBatch
from motif_jax.ilql.methods.text_methods import Rule
from motif_jax.lm import lora
from motif_jax.lm.chunks import in_chunks
from motif_jax.lm.network import States
from motif_jax.lm.sampling import token_log_probs
from motif_jax.rl.algorithms import losses


@dataclasses.dataclass(frozen=True)
class Weights:
    """Weights of the loss terms."""

    q: float = 1.0
    v: float = 1.0
    policy: float = 1.0
    conservative: float = 0.0
    margin: float = 0.0

    @property
    def of_values(self) -> bool:
        """Whether a term other than the policy's is trained."""
        return any((self.q, self.v, self.conservative, self.margin))


class Part(NamedTuple):
    """A micro-batch, and the denominators of its sums, float32 scalars, which are those of the whole batch."""

    batch: TextBatch
    counts: Counts


# Names of the heads' dropout keys, beside those of trunks.
_HEADS, _TARGET_HEADS = "heads", "target_heads"


class LossTerms(NamedTuple):
    """The loss of a micro-batch and its terms, divided but not weighted; float32 scalars."""

    loss: jax.Array
    q: jax.Array
    v: jax.Array
    conservative: jax.Array
    margin: jax.Array
    policy: jax.Array


class MeasuredLoss(NamedTuple):
    """The terms of a micro-batch, and statistics of the numbers behind them, see `implicit_q.spreads`."""

    terms: LossTerms
    spreads: dict[str, Spread]

    @property
    def loss(self) -> jax.Array:
        return self.terms.loss


@dataclasses.dataclass(frozen=True)
class Objective:
    """A method's loss."""

    agent: TextAgentNetwork
    rule: Rule
    settings: ImplicitQSettings
    weights: Weights
    reward_scale: float = 1.0  # rewards are divided by it
    detach: tuple[str, ...] = ()  # parts ('v', 'q', 'policy') whose gradient does not reach the trunk
    spec: lora.Spec | None = None  # of low-rank additions; None: whole trunks are trained
    chunk: int | None = None  # positions whose outputs for all tokens are in memory at once; None: all
    dropout: bool = False  # whether training uses the model config's dropout
    target_dropout: bool = False  # also for target and policy's weights (`compat.ilql_target_dropout`)
    zero_behind: bool = False  # the last action bootstraps from zeros behind it (`compat.ilql_next_q_zero`)
    chai_scores: bool = False  # see `chai.conservative` (`compat.chai_scores`)

    @property
    def learns_policy(self) -> bool:
        return self.weights.policy != 0

    @property
    def weighs(self) -> bool:
        """Whether the policy's weights depend on advantages."""
        varies = self.settings.beta != 0 or not self.settings.exponential
        return self.rule.q != "none" and self.learns_policy and varies

    def terms(self, learned: Any, frozen: Any, part: Part, key: jax.Array | None) -> LossTerms:
        """The loss of a micro-batch; see `measured`."""
        return self.measured(learned, frozen, part, key).terms

    def measured(self, learned: Any, frozen: Any, part: Part, key: jax.Array | None) -> MeasuredLoss:
        """The loss of a micro-batch with its terms and spreads, for `lm.training.gradient_sums`.

        Args:
          learned: `trunks` (or `additions` to them), `heads`, `prefix`.
          frozen: `trunks`, and `target` with `trunks` or `additions`, and `heads`.
          key: of dropout; None: no dropout.
        """
        batch, counts = part
        if self.reward_scale != 1:
            batch = batch._replace(rewards=batch.rewards / self.reward_scale)
        estimates = self.estimates(learned, frozen, batch, key)
        sums = self.rule.losses(batch, estimates, self.settings)
        actions, policy = (jnp.maximum(count, 1.0) for count in counts)
        terms = jax.tree.map(lambda each: each / actions, sums)._replace(policy=sums.policy / policy)
        loss = sum((getattr(self.weights, name) * getattr(terms, name) for name in terms._fields), jnp.zeros(()))  # fmt: skip
        return MeasuredLoss(LossTerms(loss, *terms), implicit_q.spreads(batch, estimates, self.settings))

    def estimates(self, learned: Any, frozen: Any, batch: TextBatch, key: jax.Array | None) -> Estimates:
        params, additions = joined(learned, frozen)
        keys = self._keys(key)
        states = self._run(params, additions, batch, keys, self._parts())
        if self.rule.proposes:
            return self._of_proposals(learned["heads"], frozen["target"]["heads"], states[VALUES], batch)
        values = qs = target_q = next_values = advantages = shifts = None
        log_probs, context, entropies = self._log_probs(params, additions, states, batch)
        if self.rule.q != "none" and (self.weights.of_values or self.weighs):
            online, of_targets = keys.get(_HEADS), keys.get(_TARGET_HEADS)
            values = self._values(learned["heads"], states[VALUES], batch, online)
            qs = self._qs(learned["heads"], states[VALUES], batch, online)
            targets = frozen["target"]["heads"]
            target_q = self._target_q(targets, states[TARGET], batch, of_targets)
            if self.rule.bootstrap == "value":
                next_values = values[:, 1:]
            else:
                next_values = self._bootstrap(params, additions, targets, states, batch, of_targets)
            next_values = jax.lax.stop_gradient(next_values)
            if self.weighs:
                plain = values
                if keys and not self.target_dropout:
                    quiet = self._run(params, additions, batch, {}, (VALUES,))
                    plain = self._values(learned["heads"], quiet[VALUES], batch, None)
                advantages = target_q - plain[:, :-1]
            if self.rule.prior_reward:
                assert log_probs is not None
                shifts = jax.lax.stop_gradient(log_probs)
        if not self.learns_policy:
            log_probs = context = entropies = None
        elif self.settings.context_weight == 0:
            context = None
        return Estimates(
            values, qs or (), target_q, next_values, log_probs, context, advantages, shifts, entropies
        )

    def _of_proposals(self, heads: Any, targets: Any, states: States, batch: TextBatch) -> Estimates:
        """Q of the mean states of actions in the data, and of actions that the policy proposes (see `ilql.methods.chai`)."""
        agent, there = self.agent, batch.candidates
        mean = chosen_states(running_mean(states.after, batch.valid), batch.actions)
        count, width = there.states.shape[2:]
        noise = chai.random_states(there.seeds, batch.actions.shape[1], count, width)
        found = []
        for name in agent.design.qs:
            q, of_all, of_noise = (
                agent.heads.apply(heads, name, x) for x in (mean, there.states[:, :-1], noise)
            )
            given = (q, of_all, there.log_probs[:, :-1], of_noise, width, self.chai_scores)
            found.append(ActionQ(q, chai.conservative(*given), jnp.zeros_like(q)))
        of_next = [agent.target_heads.apply(targets, name, there.states[:, 1:]) for name in agent.design.qs]
        best = implicit_q.target_of(of_next, self.settings).max(axis=-1)
        if self.zero_behind:
            best = best * implicit_q.shifted(batch.live.astype(jnp.float32))
        return Estimates(None, found, None, jax.lax.stop_gradient(best), None)

    def _parts(self) -> tuple[str, ...]:
        if self.rule.proposes:
            return (VALUES,)
        policy = self.learns_policy or self.rule.prior_reward or self.rule.bootstrap == "prior"
        of_values = self.rule.q != "none" and (self.weights.of_values or self.weighs)
        return ((POLICY,) if policy else ()) + ((VALUES, TARGET) if of_values else ())

    def _keys(self, key: jax.Array | None) -> dict[str, jax.Array]:
        """Dropout keys of trained trunks and their heads, and of the target's where `target_dropout` is set."""
        if key is None or not self.dropout or self.rule.proposes:
            return {}
        roles = self.agent.design.roles
        trunks = {VALUES} if self.weights.of_values else set()
        trunks |= {roles.trunk_of[POLICY]} if self.learns_policy else set()
        trunks |= {TARGET} if self.target_dropout else set()
        found = {name: jax.random.fold_in(key, i) for i, name in enumerate(roles.trunks) if name in trunks}
        heads = {_HEADS: self.weights.of_values, _TARGET_HEADS: self.target_dropout}
        behind = enumerate(heads, len(roles.trunks))
        return found | {name: jax.random.fold_in(key, i) for i, name in behind if heads[name]}

    def _run(
        self,
        params: Any,
        additions: Any,
        batch: TextBatch,
        keys: Mapping[str, jax.Array],
        parts: tuple[str, ...],
    ) -> dict[str, States]:
        """States by part; those of targets, and of a policy that is not trained, have no gradient."""
        arguments = (params, batch.tokens, batch.valid)
        found = self.agent.run(*arguments, parts, batch.returns, additions, self.spec, keys)
        shared = self.agent.design.roles.trunk_of.get(TARGET) != TARGET
        if shared and TARGET in found and keys and not self.target_dropout:
            found[TARGET] = self.agent.run(*arguments, (TARGET,), batch.returns, additions, self.spec)[TARGET]
        still = {TARGET} | ({POLICY} if "policy" in self.detach or not self.learns_policy else set())
        return {part: jax.lax.stop_gradient(each) if part in still else each for part, each in found.items()}

    def _log_probs(
        self, params: Any, additions: Any, states: Mapping[str, States], batch: TextBatch
    ) -> tuple[jax.Array | None, jax.Array | None, jax.Array | None]:
        """Log-probabilities of the actions' tokens [B, A], of all tokens but the first [B, T - 1] (None with weight 0), entropies [B, A].

        All are None where the policy does not run.
        """
        if POLICY not in states:
            return None, None, None

        def of_rows(rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            logits = self.agent.logits(params, rows[0], additions, self.spec)
            still = jax.lax.stop_gradient(logits.astype(jnp.float32))
            return token_log_probs(logits, rows[1]), losses.entropy(still)

        def of(states: jax.Array, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
            flat = (states.reshape(-1, states.shape[-1]), tokens.reshape(-1))
            log_probs, entropies = in_chunks(of_rows, flat, self.chunk)
            return log_probs.reshape(tokens.shape), entropies.reshape(tokens.shape)

        after = states[POLICY].after
        if self.settings.context_weight == 0:
            acting = chosen_states(after, batch.action_tokens)
            log_probs, entropies = of(acting, implicit_q.next_tokens(batch))
            return log_probs, None, entropies
        context, entropies = of(after[:, :-1], batch.tokens[:, 1:])
        places = jnp.minimum(batch.action_tokens, context.shape[1] - 1)
        log_probs, entropies = (jnp.take_along_axis(each, places, axis=1) for each in (context, entropies))
        return log_probs, context, entropies

    def _values(self, heads: Any, states: States, batch: TextBatch, key: jax.Array | None) -> jax.Array:
        at = _states_at(states, batch.states, "v" in self.detach)
        return self.agent.heads.apply(heads, V, at, _key(key, V))

    def _actions(self, batch: TextBatch) -> jax.Array:
        last = batch.tokens.shape[1] - 1
        return jnp.take_along_axis(batch.tokens, jnp.minimum(batch.actions + 1, last), axis=1)

    def _qs(self, heads: Any, states: States, batch: TextBatch, key: jax.Array | None) -> list[ActionQ]:
        at = _states_at(states, batch.actions, "q" in self.detach)
        names, agent = self.agent.design.qs, self.agent.heads
        if self.rule.q == "utterance":
            return [_alone(agent.apply(heads, name, at, _key(key, name))) for name in names]
        actions, wanted = self._actions(batch), (self.weights.conservative != 0, self.weights.margin != 0)
        if not any(wanted):
            return [_alone(agent.chosen(heads, name, at, actions, _key(key, name))) for name in names]

        def of_rows(rows: tuple[States, jax.Array, jax.Array]) -> list[ActionQ]:
            at, actions, numbers = rows
            every = (agent.apply(heads, name, at, _key(key, name, numbers)) for name in names)
            return [implicit_q.action_q(q, actions, self.settings, *wanted) for q in every]

        numbers = jnp.arange(actions.size, dtype=jnp.int32).reshape(actions.shape)
        flat = jax.tree.map(lambda leaf: leaf.reshape(actions.size, *leaf.shape[2:]), (at, actions, numbers))
        return jax.tree.map(lambda leaf: leaf.reshape(actions.shape), in_chunks(of_rows, flat, self.chunk))

    def _target_q(self, heads: Any, states: States, batch: TextBatch, key: jax.Array | None) -> jax.Array:
        at, agent = _states_at(states, batch.actions), self.agent.target_heads
        if self.rule.q == "utterance":
            qs = [agent.apply(heads, name, at, _key(key, name)) for name in self.agent.design.qs]
        else:
            actions = self._actions(batch)
            qs = [agent.chosen(heads, name, at, actions, _key(key, name)) for name in self.agent.design.qs]
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
        places = batch.actions if self.zero_behind else batch.states[:, 1:]
        agent, names = self.agent.target_heads, self.agent.design.qs
        at = _states_at(states[TARGET], places)
        rows: list[Any] = [at, jnp.arange(places.size, dtype=jnp.int32).reshape(places.shape)]
        if self.rule.bootstrap == "prior":
            rows.append(chosen_states(states[POLICY].after, places))

        def of_rows(rows: list[Any]) -> jax.Array:
            every = [agent.apply(heads, name, rows[0], _key(key, name, rows[1])) for name in names]
            q = implicit_q.target_of(every, self.settings)
            prior = self.agent.logits(params, rows[2], additions, self.spec) if len(rows) > 2 else None
            return implicit_q.next_value(q, self.rule.bootstrap, prior)

        flat = jax.tree.map(lambda leaf: leaf.reshape(places.size, *leaf.shape[2:]), rows)
        found = in_chunks(of_rows, flat, self.chunk).reshape(places.shape)
        if not self.zero_behind:
            return found
        behind = math.log(self.agent.model.config.vocab_size) if self.rule.bootstrap == "soft" else 0.0
        return implicit_q.shifted(found, behind)


def _key(key: jax.Array | None, name: str, numbers: jax.Array | None = None) -> jax.Array | None:
    if key is None:
        return None
    own = jax.random.fold_in(key, (V, *QS).index(name))
    return own if numbers is None else jax.random.fold_in(own, numbers[0])


def _alone(q: jax.Array) -> ActionQ:
    return ActionQ(q, jnp.zeros_like(q), jnp.zeros_like(q))


def chosen_states(states: jax.Array, places: jax.Array) -> jax.Array:
    """The states [B, T, D] at `places` int32 [B, K]: [B, K, D]."""
    return jnp.take_along_axis(states, places[..., None], axis=1)


def _states_at(states: States, places: jax.Array, still: bool = False) -> States:
    at = States(*(chosen_states(part, places) for part in states))
    return jax.lax.stop_gradient(at) if still else at


def joined(learned: Any, frozen: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The agent's trunks and prefix, and the additions to each trunk, from trained, frozen and target parameters."""
    target = frozen.get("target") or {}
    trunks = {**frozen.get("trunks", {}), **learned.get("trunks", {}), **target.get("trunks", {})}
    additions = {**learned.get("additions", {}), **target.get("additions", {})}
    params = {"trunks": trunks}
    if "prefix" in learned:
        params["prefix"] = learned["prefix"]
    return params, additions
