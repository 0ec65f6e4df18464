"""The methods that train agents on dialogues: their choices, and their losses on one device's part
of a batch (Snell et al. 2022, section 4; Kostrikov et al. 2022).

A dialogue of K actions (tokens of the agent's utterances, or whole utterances) has K + 1 states:
one before each action, and one after the last. `Rule.losses` gets the networks' `Estimates` of a
`TextBatch` from objective.py and returns sums, which are divided by the `Counts` of the whole
batch.

A new method is a `Rule` with its line in `RULES`, or a class of your own, which
`config.method.name=module:Class` names (docs/ilql.md).

CHAI learns over whole utterances that a frozen policy proposes (Verma et al. 2022); its Q reads the
mean of all states so far. In each state the policy has written N candidates. Q bootstraps from the
best of those in the next state. Those of this state, and as many random vectors, keep Q from being
too high (Kumar et al. 2020).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array

from motif_jax.core import config as checks
from motif_jax.core import entry_points
from motif_jax.core.errors import UserError
from motif_jax.ilql.config import LossWeights, PolicyWeights, TextMethod

# What a user's rule may choose; Q of the mean of states is CHAI's, whose policy proposes.
_QS = ("token", "utterance", "none")
_BOOTSTRAPS = ("value", "best", "soft", "prior")


class TextBatch(NamedTuple):
    """Dialogues side by side; numpy or jax arrays, with any axes in front of B."""

    tokens: Any  # int32 [B, T]
    valid: Any  # bool [B, T], False for padding
    # int32 [B, A], the position before each token of an action; 0 after the last
    action_token_positions: Any
    policy_mask: Any  # bool [B, A], which of those tokens the policy learns from
    # int32 [B, A], the action (0 to K - 1) that each of those tokens belongs to
    action_of_token: Any
    state_positions: Any  # int32 [B, K + 1]
    # int32 [B, K], for tokens the position before the action's token; for utterances that of the
    # utterance's last token.
    action_positions: Any
    rewards: Any  # float32 [B, K]
    terminals: Any  # float32 [B, K + 1], 1 where a state is the end of a dialogue
    action_mask: Any  # bool [B, K], which actions count
    returns: Any  # float32 [B], of the dialogue
    candidates: Any = None  # of CHAI


class Candidates(NamedTuple):
    """Candidate actions in each of K + 1 states of dialogues; arrays with any axes in front of
    B.
    """

    # float32 [B, K + 1, N, D], the mean of the dialogue's states up to the end of each candidate
    # (`compat.chai_scores`: the sum, where they were written for this step).
    states: Any
    # float32 [B, K + 1, N], of the candidates under the policy that they were drawn from
    log_probs: Any
    seeds: Any  # uint32 [B], of the random vectors


class ActionQ(NamedTuple):
    """One Q's inputs to the losses at each action, float32 [...]; terms that are not needed are
    zeros. See `Rule.action_q`.
    """

    chosen: Array  # Q of the action that was taken
    conservative: Array  # log sum exp(Q / T) - Q(a) / T
    margin: Array  # squared excess of every action's Q, with the taken one's, which is margin^2


class Estimates(NamedTuple):
    """The networks' outputs on a batch."""

    # float32 [B, K + 1], V of every state; None where only the policy is learned
    values: Array | None
    qs: Sequence[ActionQ]  # one entry for each online Q; empty where none is learned
    target_q: Array | None  # float32 [B, K], of the actions, from `target_of`
    # float32 [B, K], Q's bootstrap, undiscounted: V of the next state in ILQL
    next_values: Array | None
    log_probs: Array | None  # float32 [B, A], of the actions' tokens under the policy
    # float32 [B, T - 1], of all tokens but the first; None unless
    # `method.policy.context_weight` is above 0.
    context_log_probs: Array | None = None
    # float32 [B, K], for the policy's weights; None where these are constant
    advantages: Array | None = None
    # float32 [B, K], beside the data's: log pi of the action in Psi-learning
    added_rewards: Array | None = None
    # float32 [B, A], nats, at the actions' tokens; None: no policy is learned
    entropies: Array | None = None


class Counts(NamedTuple):
    """Denominators of the sums, float32 scalars: actions that count, and tokens of the policy's
    loss.
    """

    actions: Any
    policy: Any


class LossSums(NamedTuple):
    """Summed terms, float32 scalars."""

    q: Array  # Bellman errors of Q
    v: Array  # expectile errors of V
    conservative: Array  # of CQL
    margin: Array
    policy: Array  # weighted cross-entropy, nats


@dataclasses.dataclass(frozen=True)
class Rule:
    """The choices of a method, and its losses; a user's own method is a subclass, made without
    arguments (docs/ilql.md), whose class attributes are its choices.
    """

    q: str = "token"  # see `ilql.agent.text_agent.Design.q`
    # Q bootstraps from V of the next state ('value'), or from its target Qs: their maximum
    # ('best'), the log of the sum of their exponentials ('soft'), or that sum weighted by the
    # policy ('prior').
    bootstrap: str = "value"
    huber: bool = False  # Q has Huber's loss with delta 1 instead of the square (Psi-learning)
    prior_reward: bool = False  # add log pi of the action to its reward
    prefix: bool = False  # the policy is conditioned on the return (decision transformer)
    proposes: bool = False  # the policy is frozen; Q is compared with Q of actions that it proposes

    def __post_init__(self) -> None:
        # A subclass need not be a dataclass. `__init__` knows the defaults of this class alone, and
        # would hide the subclass's own attributes behind them.
        for field in dataclasses.fields(self):
            if getattr(self, field.name) == field.default:
                of_class = getattr(type(self), field.name)
                object.__setattr__(self, field.name, of_class)

    def weights(self, loss: LossWeights) -> LossWeights:
        """`loss` with 0 for the terms that the method does not have."""
        if self.q == "none":
            return LossWeights(q=0.0, v=0.0, policy=loss.policy)
        # The policy that proposes is frozen, and its proposals take the place of V.
        if self.proposes:
            return LossWeights(q=loss.q, v=0.0, policy=0.0, cql=loss.cql)
        # There is one Q of the whole utterance, and none of other actions that the conservative and
        # margin terms could lower.
        if self.q != "token":
            return LossWeights(q=loss.q, v=loss.v, policy=loss.policy)
        return loss

    def losses(self, batch: TextBatch, estimates: Estimates, method: TextMethod) -> LossSums:
        """The sums of the terms over a batch. Estimates of actions that do not count may hold any
        finite number.

        The caller divides them by `Counts` and multiplies them by `config.loss`. What only terms of
        weight 0 need is not computed: `ActionQ.conservative` and `ActionQ.margin` are zeros unless
        `loss.cql` and `loss.margin` are above 0.
        """
        q = jnp.zeros(())
        v = jnp.zeros(())
        conservative = jnp.zeros(())
        margin = jnp.zeros(())
        policy = jnp.zeros(())

        if estimates.qs:
            assert estimates.next_values is not None
            chex.assert_equal_shape([estimates.next_values, batch.action_mask])
            rewards = batch.rewards
            if estimates.added_rewards is not None:
                rewards = rewards + estimates.added_rewards
            # d_{k+1} is of the state after the action, hence [:, 1:].
            targets = bellman_targets(
                rewards, estimates.next_values, batch.terminals[:, 1:], method.discount
            )
            for of_action in estimates.qs:
                errors = of_action.chosen - targets
                penalties = huber_errors(errors) if self.huber else jnp.square(errors)
                q += _masked_sum(penalties, batch.action_mask)
                conservative += _masked_sum(of_action.conservative, batch.action_mask)
                margin += _masked_sum(of_action.margin, batch.action_mask)

        if estimates.values is not None and (method.monte_carlo or estimates.target_q is not None):
            v_targets = estimates.target_q
            if method.monte_carlo:
                # Of the data's rewards alone, without log pi.
                v_targets = returns_to_go(batch.rewards, method.discount)
            assert v_targets is not None
            errors = expectile_errors(v_targets, estimates.values[:, :-1], method.expectile)
            v = _masked_sum(errors, batch.action_mask)

        if estimates.log_probs is not None:
            policy = _policy_sum(batch, estimates, method.policy)
        return LossSums(q, v, conservative, margin, policy)

    def action_q(
        self, q: Array, actions: Array, method: TextMethod, conservative: bool, margin: bool
    ) -> ActionQ:
        """The terms of one Q of all tokens, float32 [..., V], at those taken, int32 [...].

        Conservative, with all tokens as actions: -log softmax(Q / T) of the action, which is log
        sum exp(Q / T) - Q(a) / T; T times it is CQL(H) of Kumar et al. 2020 at temperature T.
        Margin: sum over all actions a' of max(0, Q(a') - Q(a) + margin)^2, a among them.

        Args:
          conservative, margin: which of the two terms have a weight.
        """
        q_chosen = chosen(q, actions)
        conservative_term = jnp.zeros_like(q_chosen)
        margin_term = jnp.zeros_like(q_chosen)
        if conservative:
            conservative_term = -chosen(jax.nn.log_softmax(q / method.cql_temperature), actions)
        if margin:
            # float32 [..., V], by how much each action's Q is not `margin` below the taken one's.
            excess = jnp.maximum(q - q_chosen[..., None] + method.margin, 0.0)
            margin_term = jnp.square(excess).sum(axis=-1)
        return ActionQ(q_chosen, conservative_term, margin_term)


# ilql, sarsa and awac are one rule, and so are bc and bc_top: expectile, beta and filter tell them
# apart, which the variants of configs/train_text.py set. Snell et al. 2022, section 5 and appendix
# A; Jaques et al. 2017 and 2019 (psi, bcq, g); Chen et al. 2021 (dt); Verma et al. 2022 (chai).
RULES: Mapping[str, Rule] = {
    "bc": Rule(q="none"),
    "bc_top": Rule(q="none"),
    "dt": Rule(q="none", prefix=True),
    "ilql": Rule(),
    "sarsa": Rule(),
    "awac": Rule(),
    "ilql_utterance": Rule(q="utterance"),
    "cql": Rule(bootstrap="best"),
    # KL-control with the policy as prior: BCQ takes the best action where Psi takes the soft
    # maximum.
    "psi": Rule(bootstrap="soft", huber=True, prior_reward=True),
    "bcq": Rule(bootstrap="best", huber=True, prior_reward=True),
    "g": Rule(bootstrap="prior", huber=True),
    "chai": Rule(q="mean", proposes=True),
}


def rule_of(name: str) -> Rule:
    """The rule of a method: one of `RULES`, or an instance of 'module:Class'; else UserError."""
    if not entry_points.is_entry_point(name):
        checks.require(
            name in RULES, "method.name", name, f"one of {', '.join(RULES)}, or module:Class"
        )
        return RULES[name]
    rule: Rule = entry_points.load("method.name", name)()
    _check_choices(rule, name)
    return rule


def _check_choices(rule: Rule, name: str) -> None:
    """Raises UserError for choices of a user's rule that no training can follow."""

    def require(field: str, fits: bool, allowed: str) -> None:
        if not fits:
            value = getattr(rule, field)
            raise UserError(
                f"config.method.name={name}: its Rule has {field}={value!r}: must be {allowed}"
            )

    require("q", rule.q in _QS, f"one of {', '.join(_QS)}")
    require("bootstrap", rule.bootstrap in _BOOTSTRAPS, f"one of {', '.join(_BOOTSTRAPS)}")
    if rule.q != "token":
        reason = f"with q={rule.q!r}: there is no Q of every token"
        require("bootstrap", rule.bootstrap == "value", f"'value' {reason}")
        require("prior_reward", not rule.prior_reward, f"False {reason}")


def counts(batch: TextBatch, policy: PolicyWeights, all_tokens: bool) -> Counts:
    """The denominators of this part of a batch, before other parts are added: float32 scalars.

    The policy's is the number of tokens of actions that it learns from (`policy_mask`, bool
    [B, A]). With `all_tokens` (`compat.ilql_policy_loss_norm`), or with a `context_weight`, it is
    that of all tokens but the first of each row (`valid`, bool [B, T]).
    """
    chex.assert_equal_shape([batch.tokens, batch.valid])
    chex.assert_equal_shape([batch.policy_mask, batch.action_token_positions])
    of_all_tokens = all_tokens or policy.context_weight > 0
    counted_tokens = batch.valid[:, 1:] if of_all_tokens else batch.policy_mask
    return Counts(
        actions=jnp.sum(batch.action_mask, dtype=jnp.float32),
        policy=jnp.sum(counted_tokens, dtype=jnp.float32),
    )


def bellman_targets(
    rewards: Array, next_values: Array, next_terminals: Array, discount: float
) -> Array:
    """r + discount (1 - d') V(s'), without gradient; float32, all of one shape."""
    chex.assert_equal_shape([rewards, next_values, next_terminals])
    return jax.lax.stop_gradient(rewards + discount * (1 - next_terminals) * next_values)


def expectile_errors(targets: Array, values: Array, expectile: float) -> Array:
    """|expectile - 1[target < V]| (target - V)^2 (Kostrikov et al. 2022, equation 5).

    Args:
      targets: float32 [B, K], of the actions; without gradient.
      values: float32 [B, K], V of the states before them, with gradient.
      expectile: tau in (0, 1); 0.5 gives half the square.

    Returns:
      float32 [B, K], in squared units of the reward.
    """
    chex.assert_equal_shape([targets, values])
    errors = jax.lax.stop_gradient(targets) - values
    # tau above 1/2: a V that is too low costs more, so that V nears the best action of the data.
    return jnp.where(errors >= 0, expectile, 1 - expectile) * jnp.square(errors)


def huber_errors(errors: Array) -> Array:
    """Huber's loss with delta 1 (Huber 1964): x^2 / 2 where |x| <= 1, |x| - 1/2 beyond.

    Args:
      errors: float32 [B, K], Q less its target, in units of the reward.

    Returns:
      float32 [B, K].
    """
    size = jnp.abs(errors)
    return jnp.where(size <= 1, 0.5 * jnp.square(errors), size - 0.5)


def returns_to_go(rewards: Array, discount: float) -> Array:
    """The discounted sum of each reward and those after it: float32 [B, K] of rewards [B, K]."""
    chex.assert_rank(rewards, 2)

    def back(later: Array, reward: Array) -> tuple[Array, Array]:
        total = reward + discount * later
        return total, total

    return jax.lax.scan(back, jnp.zeros_like(rewards[:, 0]), rewards.T, reverse=True)[1].T


def target_of(qs: Sequence[Array], method: TextMethod) -> Array:
    """The smallest of the target Qs (Fujimoto et al. 2018), clipped: float32, of the shape of
    each.
    """
    chex.assert_equal_shape(list(qs))
    smallest = qs[0] if len(qs) == 1 else jnp.minimum(*qs)
    return clipped(smallest, method.q_min, method.q_max)


def clipped(q: Array, q_min: float | None, q_max: float | None) -> Array:
    """Clips values to [q_min, q_max]; None for no limit."""
    if q_min is None and q_max is None:
        return q
    return jnp.clip(q, q_min, q_max)


def next_value(q: Array, kind: str, prior_logits: Array | None = None) -> Array:
    """The bootstrap value of a Q from target Qs of all actions float32 [..., V]: float32 [...].

    Args:
      kind: 'best': the greatest; 'soft': log sum exp Q (Psi-learning, Jaques et al. 2017); 'prior':
          log sum pi exp Q (G-learning).
      prior_logits: float32 [..., V] of pi, for 'prior'.
    """
    if kind == "best":
        return q.max(axis=-1)
    if kind == "soft":
        return jax.nn.logsumexp(q, axis=-1)
    assert kind == "prior"
    assert prior_logits is not None
    return jax.nn.logsumexp(q + jax.nn.log_softmax(prior_logits), axis=-1)


def values_of_next_action(values: Array, after_last: float = 0.0) -> Array:
    """`values` [B, K] of the next action, with `after_last` at the end, as published
    (`compat.ilql_next_q_zero`).
    """
    return jnp.concatenate([values[:, 1:], jnp.full_like(values[:, :1], after_last)], axis=1)


def without_terms(q: Array) -> ActionQ:
    """Q of the actions alone, where no term compares it."""
    return ActionQ(q, jnp.zeros_like(q), jnp.zeros_like(q))


def policy_weights(advantages: Array, policy: PolicyWeights) -> Array:
    """The policy's weights of actions by their advantages (Snell et al. 2022, section 4; Kostrikov
    et al. 2022, equation 7).

    Args:
      advantages: A, float32 [B, K], the target Q less V.
      policy: `exponential`: exp(beta A); else beta where A > 0, 1 - beta elsewhere. `most_weight`
          limits either.

    Returns:
      float32 [B, K], without gradient.
    """
    advantages = jax.lax.stop_gradient(advantages)
    if policy.exponential:
        weights = jnp.exp(policy.beta * advantages)
    else:
        weights = jnp.where(advantages > 0, policy.beta, 1 - policy.beta)
    return weights if policy.most_weight is None else jnp.minimum(weights, policy.most_weight)


def policy_token_weights(batch: TextBatch, advantages: Array, policy: PolicyWeights) -> Array:
    """The policy's weight of predicting the token after each position, float32 [B, T], of
    advantages [B, K] (`get_weights`).
    """
    chex.assert_equal_shape([advantages, batch.action_mask])
    context_weight = policy.context_weight
    if policy.most_weight is not None:
        context_weight = min(context_weight, policy.most_weight)
    weights = jnp.full(batch.tokens.shape, context_weight, jnp.float32)
    of_actions = jnp.take_along_axis(
        policy_weights(advantages, policy), batch.action_of_token, axis=1
    )
    # Positions outside the row are dropped: those of tokens that the policy does not learn from.
    positions = jnp.where(batch.policy_mask, batch.action_token_positions, batch.tokens.shape[1])
    rows = jnp.arange(len(positions))[:, None]
    return weights.at[rows, positions].set(of_actions, mode="drop")


def _policy_sum(batch: TextBatch, estimates: Estimates, policy: PolicyWeights) -> Array:
    """Weighted cross-entropy in nats of the actions' tokens, and of all others where
    `context_weight` is above 0.
    """
    assert estimates.log_probs is not None
    advantages = estimates.advantages
    if advantages is None:
        # Constant weights, exp(0). The other form always has advantages (`Objective.weighs`).
        advantages = jnp.zeros(batch.action_mask.shape)
    if policy.context_weight > 0:
        assert estimates.context_log_probs is not None
        # The last position predicts no token.
        weights = policy_token_weights(batch, advantages, policy)[:, :-1]
        return -jnp.sum(jnp.where(batch.valid[:, 1:], weights * estimates.context_log_probs, 0.0))
    weights = jnp.take_along_axis(policy_weights(advantages, policy), batch.action_of_token, axis=1)
    return -jnp.sum(jnp.where(taught_tokens(batch), weights * estimates.log_probs, 0.0))


def taught_tokens(batch: TextBatch) -> Array:
    """Which tokens of actions exist and teach the policy: bool [B, A]."""
    # In an item without actions, a position may have no token after it
    # (`compat.ilql_padded_positions`).
    return batch.policy_mask & _next_entries(batch.valid, batch.action_token_positions)


def policy_tokens(batch: TextBatch) -> Array:
    """The tokens that the policy predicts, int32 [B, A]: all tokens of the agent's actions."""
    return _next_entries(batch.tokens, batch.action_token_positions)


def action_tokens(batch: TextBatch) -> Array:
    """The token of each action, int32 [B, K], where an action is a token; for utterances see
    `TextBatch.action_positions`.
    """
    return _next_entries(batch.tokens, batch.action_positions)


def _next_entries(of_tokens: Array, positions: Array) -> Array:
    """The entries of [B, T] after `positions` int32 [B, N]; the last entry where none follows."""
    last = of_tokens.shape[1] - 1
    return jnp.take_along_axis(of_tokens, jnp.minimum(positions + 1, last), axis=1)


def chosen(of_all: Array, index: Array) -> Array:
    """The entries at `index` int32 [...] of [..., V]."""
    chex.assert_equal_shape_prefix([of_all, index], index.ndim)
    return jnp.take_along_axis(of_all, index[..., None], axis=-1)[..., 0]


def _masked_sum(errors: Array, mask: Array) -> Array:
    chex.assert_equal_shape([errors, mask])
    return jnp.sum(jnp.where(mask, errors, 0.0))


def random_states(seeds: Array, states: int, count: int, width: int) -> Array:
    """Vectors uniform in (-1, 1), float32 [B, K, N, D], of seeds uint32 [B]."""
    chex.assert_rank(seeds, 1)
    shape = (states, count, width)
    keys = jax.vmap(jax.random.key)(seeds)
    return jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))(keys)


def conservative_of_candidates(
    q: Array, sampled: Array, log_probs: Array, noise: Array, width: int, published: bool = False
) -> Array:
    """Log of a mean of exp(Q) / p over candidates, minus Q of the action in the data; float32
    [...].

    Args:
      q: float32 [...], of the utterance in the data.
      sampled, log_probs: float32 [..., N], Q and log p of the candidates.
      noise: float32 [..., N], Q of vectors uniform in (-1, 1)^D, whose density is 2^-D; D is
          `width`.
      published: the division by 2N stands inside the exponent, and the density is 1 / (2 D)
          (`compat.chai_scores`).
    """
    chex.assert_equal_shape([sampled, log_probs, noise])
    chex.assert_equal_shape_prefix([q, sampled], q.ndim)
    # log sum exp Q as a mean over 2N samples that is weighted by their density (Kumar et al. 2020,
    # appendix F).
    log_density = -math.log(2 * width) if published else -width * math.log(2)
    terms = jnp.concatenate([sampled - log_probs, noise - log_density], axis=-1)
    count = terms.shape[-1]
    # [..., 2N], the candidates and as many random vectors.
    if published:
        return jax.nn.logsumexp(terms / count, axis=-1) - q
    return jax.nn.logsumexp(terms, axis=-1) - math.log(count) - q
