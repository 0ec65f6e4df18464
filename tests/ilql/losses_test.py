"""The losses of ILQL against values and loops by hand."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.ilql import methods, objective
from motif_jax.ilql.config import PolicyWeights, TextMethod
from motif_jax.ilql.methods import Estimates, Rule

Q = jnp.array([[1.0, 3.0], [0.0, -2.0]])
EXP_Q = np.exp(np.array([[1.0, 3.0], [0.0, -2.0]]))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("best", [3.0, 0.0]),
        ("soft", np.log(EXP_Q.sum(axis=1))),
        ("prior", np.log(EXP_Q @ [0.25, 0.75])),
    ],
    ids=["best", "soft", "prior"],
)
def test_a_next_value_is_the_maximum_or_a_logsumexp(kind: str, values: np.ndarray) -> None:
    prior_logits = jnp.log(jnp.array([1.0, 3.0]))

    np.testing.assert_allclose(methods.next_value(Q, kind, prior_logits), values, rtol=1e-6)


def test_a_target_is_the_smaller_q_within_its_limits() -> None:
    method = TextMethod(q_min=-3.0, q_max=2.0)

    np.testing.assert_array_equal(methods.target_of([Q, 2 * Q], method), [[1, 2], [0, -3]])


def test_the_last_actions_next_value_is_the_final_value() -> None:
    values = jnp.array([[1.0, 2.0, 3.0]])

    np.testing.assert_array_equal(methods.values_of_next_action(values, 9.0), [[2, 3, 9]])


def test_a_bellman_target_ends_at_a_terminal_state() -> None:
    rewards = jnp.ones(2)
    next_values = jnp.full(2, 10.0)

    targets = methods.bellman_targets(rewards, next_values, jnp.array([0.0, 1.0]), 0.5)

    np.testing.assert_array_equal(targets, [1 + 0.5 * 10, 1])


def test_an_expectile_weighs_errors_by_their_sign() -> None:
    targets = jnp.array([2.0, 0.0, 1.0])
    values = jnp.array([0.0, 2.0, 1.0])

    errors = methods.expectile_errors(targets, values, 0.7)

    np.testing.assert_allclose(errors, [0.7 * 4, 0.3 * 4, 0], rtol=1e-6)


@pytest.mark.slow
def test_an_expectile_regression_ends_at_the_expectile() -> None:
    """Where the gradient is 0, the weighted errors above and below are equal (Newey and Powell
    1987).
    """
    targets = jnp.array([0.0, 1.0, 2.0, 7.0])
    expectile = 0.8

    def loss(value: jax.Array) -> jax.Array:
        return methods.expectile_errors(targets, jnp.full(4, value), expectile).sum()

    value = jnp.asarray(0.0)
    for _ in range(200):
        value -= 0.1 * jax.grad(loss)(value)

    above = np.maximum(targets - value, 0).sum()
    below = np.maximum(value - targets, 0).sum()
    np.testing.assert_allclose(expectile * above, (1 - expectile) * below, rtol=1e-4)
    assert value > targets.mean()


ADVANTAGES = jnp.array([-2.0, 0.0, 1.0, 4.0])


def test_the_policy_is_weighed_by_exponentials_up_to_a_limit() -> None:
    weights = methods.policy_weights(ADVANTAGES, PolicyWeights(beta=0.5, most_weight=2.0))

    np.testing.assert_allclose(weights, np.minimum(np.exp([-1, 0, 0.5, 2]), 2), rtol=1e-6)


def test_the_policy_may_be_weighed_by_the_sign_of_advantages() -> None:
    weights = methods.policy_weights(ADVANTAGES, PolicyWeights(beta=0.7, exponential=False))

    np.testing.assert_allclose(weights, [0.3, 0.3, 0.7, 0.7], rtol=1e-6)


def test_huber_errors_are_linear_beyond_one() -> None:
    errors = methods.huber_errors(jnp.array([-3.0, -1.0, 0.5, 2.0]))

    np.testing.assert_allclose(errors, [2.5, 0.5, 0.125, 1.5], rtol=1e-6)


POSITIONS = np.array([[1, 3, 4], [0, 2, 6]], np.int32)


def by_hand_batch() -> methods.TextBatch:
    """Two dialogues of seven tokens with three actions: one token that is none's, one action that
    does not count, padding.
    """
    draws = np.random.default_rng(5)
    return methods.TextBatch(
        tokens=draws.integers(0, 4, (2, 7)).astype(np.int32),
        valid=np.arange(7) < np.array([[6], [7]]),
        action_token_positions=POSITIONS,
        policy_mask=np.array([[True, True, True], [True, False, True]]),
        action_of_token=np.array([[0, 1, 2], [0, 0, 1]], np.int32),
        state_positions=POSITIONS,
        action_positions=POSITIONS,
        rewards=draws.normal(size=(2, 3)).astype(np.float32),
        terminals=np.array([[0, 0, 0, 1], [0, 0, 1, 1]], np.float32),
        action_mask=np.array([[True, True, True], [True, True, False]]),
        returns=draws.normal(size=2).astype(np.float32),
    )


class Outputs(NamedTuple):
    """What two Qs, their targets, V and the policy's log-probabilities are at the positions of
    `by_hand_batch`.
    """

    qs: np.ndarray  # [2, B, K, V]
    targets: np.ndarray  # [2, B, K, V]
    values: np.ndarray  # [B, K + 1]
    log_probs: np.ndarray  # [B, T - 1]


def drawn_outputs() -> Outputs:
    draws = np.random.default_rng(6)
    shapes = ((2, 2, 3, 4), (2, 2, 3, 4), (2, 4), (2, 6))
    qs, targets, values, logs = (draws.normal(size=shape).astype(np.float32) for shape in shapes)
    return Outputs(qs, targets, values, -np.abs(logs))


def estimates_by_hand(
    batch: methods.TextBatch, outputs: Outputs, method: TextMethod, huber: bool
) -> Estimates:
    tokens = methods.action_tokens(batch)
    rows = [Rule().action_q(jnp.asarray(q), tokens, method, True, True) for q in outputs.qs]
    target = methods.chosen(
        methods.target_of(list(map(jnp.asarray, outputs.targets)), method), tokens
    )
    log_probs = jnp.take_along_axis(
        jnp.asarray(outputs.log_probs), jnp.minimum(POSITIONS, 5), axis=1
    )
    return Estimates(
        jnp.asarray(outputs.values),
        rows,
        target,
        methods.values_of_next_action(target, 0.2),
        log_probs,
        jnp.asarray(outputs.log_probs),
        target - outputs.values[:, :-1],
        0.1 * log_probs if huber else None,
        -log_probs,
    )


def loops(
    batch: methods.TextBatch, outputs: Outputs, method: TextMethod, huber: bool
) -> dict[str, float]:
    """The sums of the losses by plain loops over dialogues, actions and tokens."""
    sums = dict.fromkeys(methods.LossSums._fields, 0.0)
    low = -np.inf if method.q_min is None else method.q_min
    high = np.inf if method.q_max is None else method.q_max
    for dialogue in range(2):
        tokens = [batch.tokens[dialogue, min(position + 1, 6)] for position in POSITIONS[dialogue]]
        targets = [
            np.clip(min(q[dialogue, k, token] for q in outputs.targets), low, high)
            for k, token in enumerate(tokens)
        ]
        logs = [outputs.log_probs[dialogue, min(position, 5)] for position in POSITIONS[dialogue]]
        advantages = [
            target - value for target, value in zip(targets, outputs.values[dialogue], strict=False)
        ]
        weights = [weight_by_hand(advantage, method.policy) for advantage in advantages]
        to_go = 0.0
        returns = [0.0] * 3
        for k in reversed(range(3)):
            to_go = float(batch.rewards[dialogue, k]) + method.discount * to_go
            returns[k] = to_go
        for k in range(3):
            if not batch.action_mask[dialogue, k]:
                continue
            following = targets[k + 1] if k < 2 else 0.2
            reward = batch.rewards[dialogue, k] + (0.1 * logs[k] if huber else 0)
            aim = reward + method.discount * (1 - batch.terminals[dialogue, k + 1]) * following
            for q in outputs.qs:
                row = q[dialogue, k].astype(np.float64)
                sums["q"] += q_loss_by_hand(row[tokens[k]] - aim, huber)
                scaled = row / method.cql_temperature
                sums["conservative"] += np.log(np.exp(scaled).sum()) - scaled[tokens[k]]
                sums["margin"] += sum(
                    max(0, other - row[tokens[k]] + method.margin) ** 2 for other in row
                )
            target = returns[k] if method.monte_carlo else targets[k]
            error = target - outputs.values[dialogue, k]
            sums["v"] += (method.expectile if error >= 0 else 1 - method.expectile) * error**2
        for number, position in enumerate(POSITIONS[dialogue]):
            if (
                method.policy.context_weight == 0
                and batch.policy_mask[dialogue, number]
                and batch.valid[dialogue, min(position + 1, 6)]
            ):
                sums["policy"] -= weights[batch.action_of_token[dialogue, number]] * logs[number]
        if method.policy.context_weight:
            acting = {
                int(position): weights[batch.action_of_token[dialogue, number]]
                for number, position in enumerate(POSITIONS[dialogue])
                if batch.policy_mask[dialogue, number]
            }
            for position in range(int(batch.valid[dialogue].sum()) - 1):
                weight = acting.get(
                    position, min(method.policy.context_weight, method.policy.most_weight or np.inf)
                )
                sums["policy"] -= weight * outputs.log_probs[dialogue, position]
    return sums


def q_loss_by_hand(error: float, huber: bool) -> float:
    """The square of an error, or Huber's loss."""
    size = abs(error)
    if not huber:
        return size**2
    return size**2 / 2 if size <= 1 else size - 0.5


def weight_by_hand(advantage: float, policy: PolicyWeights) -> float:
    if policy.exponential:
        weight = float(np.exp(policy.beta * advantage))
    else:
        weight = policy.beta if advantage > 0 else 1 - policy.beta
    return weight if policy.most_weight is None else min(weight, policy.most_weight)


CLIPPED = TextMethod(
    policy=PolicyWeights(beta=0.5, most_weight=1.2),
    expectile=0.8,
    cql_temperature=2.0,
    margin=0.3,
    q_min=-0.4,
    q_max=0.9,
)
SIGNS = TextMethod(
    policy=PolicyWeights(beta=0.7, exponential=False), monte_carlo=True, discount=0.9
)
CONTEXT = TextMethod(policy=PolicyWeights(context_weight=0.4, beta=0.3, most_weight=1.1))
by_method = pytest.mark.parametrize(
    ("method", "huber"),
    [(TextMethod(), False), (CLIPPED, True), (SIGNS, False), (CONTEXT, False)],
    ids=["default", "clipped", "signs", "context"],
)


@by_method
def test_losses_are_those_of_plain_loops(method: TextMethod, huber: bool) -> None:
    batch = by_hand_batch()
    outputs = drawn_outputs()
    estimates = estimates_by_hand(batch, outputs, method, huber)
    sums = Rule(huber=huber).losses(batch, estimates, method)._asdict()
    for name, value in loops(batch, outputs, method, huber).items():
        np.testing.assert_allclose(sums[name], value, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("weights", "all_tokens", "policy"),
    [(PolicyWeights(), False, 5), (PolicyWeights(), True, 11), (CONTEXT.policy, False, 11)],
    ids=["actions", "all", "context"],
)
def test_means_are_over_live_actions_and_the_policys_tokens(
    weights: PolicyWeights, all_tokens: bool, policy: int
) -> None:
    assert methods.counts(by_hand_batch(), weights, all_tokens) == (5, policy)


def test_spreads_cover_the_actions_that_count() -> None:
    """A spread is a sum, a count, the least and the greatest number."""
    batch = by_hand_batch()
    outputs = drawn_outputs()
    spreads = objective.value_spreads(
        batch, estimates_by_hand(batch, outputs, CLIPPED, False), CLIPPED.policy
    )
    assert set(spreads) == {"q", "v", "target_q", "advantage", "policy_weight", "entropy"}
    values = outputs.values[:, :-1][batch.action_mask]
    np.testing.assert_allclose(
        spreads["v"], (values.sum(), 5, values.min(), values.max()), rtol=1e-5, atol=1e-6
    )
    assert tuple(spreads["q"])[1] == 10
    assert tuple(spreads["policy_weight"])[3] <= 1.2
    assert tuple(spreads["target_q"])[2] >= np.float32(-0.4)


def test_nothing_estimated_has_no_loss_and_no_spread() -> None:
    nothing = Estimates(None, [], None, None, None)
    assert Rule().losses(by_hand_batch(), nothing, TextMethod()) == (0, 0, 0, 0, 0)
    assert objective.value_spreads(by_hand_batch(), nothing, PolicyWeights()) == {}
