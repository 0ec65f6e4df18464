"""Implicit Q-learning on text: its loss on one device's part of a batch (Snell et al. 2022, section
4; Kostrikov et al. 2022).

A dialogue of K actions (tokens of the agent's utterances, or whole utterances) has K + 1 states:
one before each action, and one after the last. `losses` returns sums; the caller divides them by
the `Counts` of the whole batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array


@dataclasses.dataclass(frozen=True)
class ImplicitQSettings:
    """The numbers of the loss; the names in brackets are those of the paper's code."""

    discount: float = 0.99  # of a step from one action to the next (gamma)
    expectile: float = 0.7  # of the target Q that V estimates (tau); 0.5 is the mean
    beta: float = 0.0  # of the policy's weights (beta); 0 weights all actions alike
    # weights are exp(beta A); else beta or 1 - beta by A's sign (exp_weights)
    exponential: bool = True
    most_weight: float | None = None  # upper limit of the weights (clip_weight); None for no limit
    context_weight: float = 0.0  # weight of tokens that belong to no action (transition_weight)
    q_min: float | None = None  # lower limit of the target Q (value_min); None for no limit
    q_max: float | None = None  # upper limit of the target Q (value_max); None for no limit
    cql_temperature: float = 1.0  # T of the conservative term (cql_temp)
    margin: float = 0.0  # of the margin term (dm_margin)
    # V estimates the observed return instead of the target Q (mc_returns)
    monte_carlo: bool = False
    # divides the policy's loss by all tokens (`compat.ilql_policy_loss_norm`)
    all_tokens: bool = False


@dataclasses.dataclass(frozen=True)
class Weights:
    """Weights of the loss terms."""

    q: float = 1.0
    v: float = 1.0
    policy: float = 1.0
    conservative: float = 0.0
    margin: float = 0.0

    @property
    def trains_values(self) -> bool:
        """Whether a term other than the policy's is trained."""
        return any((self.q, self.v, self.conservative, self.margin))


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
    candidates: Any = None  # `chai.Candidates` for CHAI


class ActionQ(NamedTuple):
    """One Q's inputs to the losses at each action, float32 [...]; terms that are not needed are
    zeros. See `action_q`.
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
    # `ImplicitQSettings.context_weight` is above 0.
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


def chosen(of_all: Array, index: Array) -> Array:
    """The entries at `index` int32 [...] of [..., V]."""
    chex.assert_equal_shape_prefix([of_all, index], index.ndim)
    return jnp.take_along_axis(of_all, index[..., None], axis=-1)[..., 0]


def action_q(
    q: Array, actions: Array, settings: ImplicitQSettings, conservative: bool, margin: bool
) -> ActionQ:
    """The terms of one Q of all actions, float32 [..., V], at those taken, int32 [...].

    Conservative, with all tokens as actions: -log softmax(Q / T) of the action, which is log sum
    exp(Q / T) - Q(a) / T; T times it is CQL(H) of Kumar et al. 2020 at temperature T. Margin: sum
    over all actions a' of max(0, Q(a') - Q(a) + margin)^2, a among them.
    """
    q_chosen = chosen(q, actions)
    conservative_term = jnp.zeros_like(q_chosen)
    margin_term = jnp.zeros_like(q_chosen)
    if conservative:
        conservative_term = -chosen(jax.nn.log_softmax(q / settings.cql_temperature), actions)
    if margin:
        # float32 [..., V], by how much each action's Q is not `margin` below the taken one's.
        excess = jnp.maximum(q - q_chosen[..., None] + settings.margin, 0.0)
        margin_term = jnp.square(excess).sum(axis=-1)
    return ActionQ(q_chosen, conservative_term, margin_term)


def without_terms(q: Array) -> ActionQ:
    """Q of the actions alone, where no term compares it."""
    return ActionQ(q, jnp.zeros_like(q), jnp.zeros_like(q))


def target_of(qs: Sequence[Array], settings: ImplicitQSettings) -> Array:
    """The smallest of the target Qs (Fujimoto et al. 2018), clipped: float32, of the shape of
    each.
    """
    chex.assert_equal_shape(list(qs))
    smallest = qs[0] if len(qs) == 1 else jnp.minimum(*qs)
    return clipped(smallest, settings.q_min, settings.q_max)


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


def bellman_targets(
    rewards: Array, next_values: Array, next_terminals: Array, discount: float
) -> Array:
    """r + discount (1 - d') V(s'), without gradient; float32, all of one shape."""
    chex.assert_equal_shape([rewards, next_values, next_terminals])
    return jax.lax.stop_gradient(rewards + discount * (1 - next_terminals) * next_values)


def returns_to_go(rewards: Array, discount: float) -> Array:
    """The discounted sum of each reward and those after it: float32 [B, K] of rewards [B, K]."""
    chex.assert_rank(rewards, 2)

    def back(later: Array, reward: Array) -> tuple[Array, Array]:
        total = reward + discount * later
        return total, total

    return jax.lax.scan(back, jnp.zeros_like(rewards[:, 0]), rewards.T, reverse=True)[1].T


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


def policy_weights(advantages: Array, settings: ImplicitQSettings) -> Array:
    """The policy's weights of actions by their advantages (Snell et al. 2022, section 4; Kostrikov
    et al. 2022, equation 7).

    Args:
      advantages: A, float32 [B, K], the target Q less V.
      settings: `exponential`: exp(beta A); else beta where A > 0, 1 - beta elsewhere. `most_weight`
          limits either.

    Returns:
      float32 [B, K], without gradient.
    """
    advantages = jax.lax.stop_gradient(advantages)
    if settings.exponential:
        weights = jnp.exp(settings.beta * advantages)
    else:
        weights = jnp.where(advantages > 0, settings.beta, 1 - settings.beta)
    return weights if settings.most_weight is None else jnp.minimum(weights, settings.most_weight)


def policy_token_weights(batch: TextBatch, advantages: Array, settings: ImplicitQSettings) -> Array:
    """The policy's weight of predicting the token after each position, float32 [B, T], of
    advantages [B, K] (`get_weights`).
    """
    chex.assert_equal_shape([advantages, batch.action_mask])
    context_weight = settings.context_weight
    if settings.most_weight is not None:
        context_weight = min(context_weight, settings.most_weight)
    weights = jnp.full(batch.tokens.shape, context_weight, jnp.float32)
    of_actions = jnp.take_along_axis(
        policy_weights(advantages, settings), batch.action_of_token, axis=1
    )
    # Positions outside the row are dropped: those of tokens that the policy does not learn from.
    positions = jnp.where(batch.policy_mask, batch.action_token_positions, batch.tokens.shape[1])
    rows = jnp.arange(len(positions))[:, None]
    return weights.at[rows, positions].set(of_actions, mode="drop")


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


def counts(batch: TextBatch, settings: ImplicitQSettings) -> Counts:
    """The denominators of this part of a batch, before other parts are added: float32 scalars.

    The policy's is the number of tokens of actions that it learns from (`policy_mask`, bool
    [B, A]). With `all_tokens`, or with a `context_weight`, it is that of all tokens but the first
    of each row (`valid`, bool [B, T]).
    """
    chex.assert_equal_shape([batch.tokens, batch.valid])
    chex.assert_equal_shape([batch.policy_mask, batch.action_token_positions])
    of_all_tokens = settings.all_tokens or settings.context_weight > 0
    counted_tokens = batch.valid[:, 1:] if of_all_tokens else batch.policy_mask
    return Counts(
        actions=jnp.sum(batch.action_mask, dtype=jnp.float32),
        policy=jnp.sum(counted_tokens, dtype=jnp.float32),
    )


def losses(
    batch: TextBatch, estimates: Estimates, settings: ImplicitQSettings, huber: bool = False
) -> LossSums:
    """The sums of the terms over a batch. Estimates of actions that do not count may hold any
    finite number.

    Args:
      huber: the loss of Q is Huber's with delta 1 (Psi-learning) instead of the square.
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
            rewards, estimates.next_values, batch.terminals[:, 1:], settings.discount
        )
        for of_action in estimates.qs:
            errors = of_action.chosen - targets
            penalties = huber_errors(errors) if huber else jnp.square(errors)
            q += _masked_sum(penalties, batch.action_mask)
            conservative += _masked_sum(of_action.conservative, batch.action_mask)
            margin += _masked_sum(of_action.margin, batch.action_mask)

    if estimates.values is not None and (settings.monte_carlo or estimates.target_q is not None):
        v_targets = estimates.target_q
        if settings.monte_carlo:
            # Of the data's rewards alone, without log pi.
            v_targets = returns_to_go(batch.rewards, settings.discount)
        assert v_targets is not None
        errors = expectile_errors(v_targets, estimates.values[:, :-1], settings.expectile)
        v = _masked_sum(errors, batch.action_mask)

    if estimates.log_probs is not None:
        policy = _policy_sum(batch, estimates, settings)
    return LossSums(q, v, conservative, margin, policy)


def _masked_sum(errors: Array, mask: Array) -> Array:
    chex.assert_equal_shape([errors, mask])
    return jnp.sum(jnp.where(mask, errors, 0.0))


def _policy_sum(batch: TextBatch, estimates: Estimates, settings: ImplicitQSettings) -> Array:
    """Weighted cross-entropy in nats of the actions' tokens, and of all others where
    `context_weight` is above 0.
    """
    assert estimates.log_probs is not None
    advantages = estimates.advantages
    if advantages is None:
        # Constant weights, exp(0). The other form always has advantages (`Estimator.weighs`).
        advantages = jnp.zeros(batch.action_mask.shape)
    if settings.context_weight > 0:
        assert estimates.context_log_probs is not None
        # The last position predicts no token.
        weights = policy_token_weights(batch, advantages, settings)[:, :-1]
        return -jnp.sum(jnp.where(batch.valid[:, 1:], weights * estimates.context_log_probs, 0.0))
    weights = jnp.take_along_axis(
        policy_weights(advantages, settings), batch.action_of_token, axis=1
    )
    return -jnp.sum(jnp.where(taught_tokens(batch), weights * estimates.log_probs, 0.0))


def taught_tokens(batch: TextBatch) -> Array:
    """Which tokens of actions exist and teach the policy: bool [B, A]."""
    # In an item without actions, a position may have no token after it
    # (`compat.ilql_padded_positions`).
    return batch.policy_mask & _next_entries(batch.valid, batch.action_token_positions)


def huber_errors(errors: Array) -> Array:
    """Huber's loss with delta 1 (Huber 1964): x^2 / 2 where |x| <= 1, |x| - 1/2 beyond.

    Args:
      errors: float32 [B, K], Q less its target, in units of the reward.

    Returns:
      float32 [B, K].
    """
    size = jnp.abs(errors)
    return jnp.where(size <= 1, 0.5 * jnp.square(errors), size - 0.5)
