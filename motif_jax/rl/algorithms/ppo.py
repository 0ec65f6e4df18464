"""PPO over whole rollouts (Schulman et al. 2017), as GLAM trains a language model's policy and
value.

Targets are computed once, from the values that the rollout was played with. Losses are returned row
by row, so that a minibatch may run in parts whose sums add up.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array

from motif_jax.core.training import reductions
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.nets import categorical
from motif_jax.rl.algorithms import distributions, losses
from motif_jax.rl.algorithms.gae import gae
from motif_jax.rl.algorithms.vtrace import Targets


class Samples(NamedTuple):
    """N played steps with their targets, as the loss compares them with the network's present
    output.
    """

    action: Array  # int32 [N], index into the step's actions; or n real numbers, float32 [N, n]
    behaviour_log_prob: Array  # float32 [N], of `action` under the policy that played it, in nats
    behaviour_value: Array  # float32 [N], V of that policy's network; or [N, S], see `value_losses`
    advantage: Array  # float32 [N]
    target: Array  # float32, value target, of the shape of `behaviour_value`
    valid: Array  # bool [N], the rows that count


class StepLosses(NamedTuple):
    """The terms of the loss of N steps, float32 [N] each."""

    policy: Array  # minus the clipped surrogate
    value: Array  # the clipped square of the value's error
    entropy: Array  # of the current policy, in nats
    ratio: Array  # current over behaviour probability of the action


def targets(
    value: Array,
    bootstrap_value: Array,
    reward: Array,
    discount: Array,
    last: Array,
    gae_lambda: float,
) -> Targets:
    """Advantages A (Schulman et al. 2016, equation 16), and value targets A + V, over a rollout.

    Args:
      value: float32 [T, B], V of the policy that played, in units of the reward.
      bootstrap_value: float32 [B], V of the state after the last row.
      reward: float32 [T, B].
      discount: float32 [T, B], 0 where the episode ends with this row. With
        `compat.timeout_as_terminal` it is 0 at a timeout too, and there are no `last` rows.
      last: bool [T, B], rows that only carry the value of an episode's final observation; see
        `gae.gae`.
      gae_lambda: lambda in [0, 1].

    Returns:
      Targets float32 [T, B]; in a `last` row the advantage is 0 and the target V.
    """
    # The target of `gae` itself is the discounted return, as APPO's.
    advantage = gae(value, bootstrap_value, reward, discount, last, gae_lambda).advantage
    return Targets(advantage + value, advantage)


def value_losses(value: Array, behaviour_value: Array, target: Array, clip_value: float) -> Array:
    """`losses.value_errors` of each row; float32 [N].

    Args:
      value: float32 [N], with gradient.
      behaviour_value, target: float32 [N]. With `compat.glam_value_broadcast` float32 [N, S], those
        of the S rows that one process of the published system learns from together: the row's term
        is the mean over all of them.
    """
    chex.assert_rank(value, 1)
    chex.assert_equal_shape([behaviour_value, target])
    chex.assert_equal_shape_prefix([value, target], 1)
    if target.ndim == 2:
        # [N, 1] beside targets [N, S]: each value is compared with all S.
        value = value[:, None]
    errors = losses.value_errors(value, behaviour_value, target, clip_value)
    return errors if target.ndim == 1 else jnp.mean(errors, axis=1)


def with_rows_of_block(x: Array, size: int) -> Array:
    """Gives each row all rows of its block of `size`, [N] to [N, size], for
    `compat.glam_value_broadcast` in `value_losses`.
    """
    chex.assert_rank(x, 1)
    return jnp.repeat(x.reshape(-1, size), size, axis=0)


def step_losses_from_logits(
    logits: Array, value: Array, samples: Samples, clip_ratio: float, clip_value: float
) -> StepLosses:
    """`step_losses` of a policy over numbered actions.

    Args:
      logits: float32 [N, A] of the policy over each step's actions, with gradient; -inf, or far
        below the others, where an action does not exist.
      value, clip_ratio, clip_value: see `step_losses`.
    """
    chex.assert_rank([logits, value], [2, 1])
    chex.assert_equal_shape([value, samples.action, samples.behaviour_log_prob, samples.advantage])
    log_prob = losses.log_probability(logits, samples.action)
    return step_losses(
        log_prob, categorical.entropy(logits), value, samples, clip_ratio, clip_value
    )


def policy_step_losses(
    spec: EnvironmentSpec,
    outputs: Array,
    value: Array,
    samples: Samples,
    clip_ratio: float,
    clip_value: float,
) -> StepLosses:
    """`step_losses` of a policy with `outputs` float32 [N, ...] over the actions of `spec`, which
    are numbered or real.
    """
    if spec.action_size == 0:
        return step_losses_from_logits(outputs, value, samples, clip_ratio, clip_value)
    log_prob = distributions.log_prob(spec, outputs, samples.action)
    return step_losses(
        log_prob, distributions.entropy(spec, outputs), value, samples, clip_ratio, clip_value
    )


def step_losses(
    log_prob: Array,
    entropy: Array,
    value: Array,
    samples: Samples,
    clip_ratio: float,
    clip_value: float,
) -> StepLosses:
    """The terms of the loss of N steps.

    Args:
      log_prob: float32 [N], of the actions under the current policy, in nats, with gradient.
      entropy: float32 [N], of the current policy, in nats, with gradient.
      value: float32 [N], with gradient.
      clip_ratio: c, so that 0.2 clips to [0.8, 1.2].
      clip_value: greatest change of the value, in its units.
    """
    chex.assert_equal_shape(
        [log_prob, entropy, value, samples.behaviour_log_prob, samples.advantage]
    )
    ratio = jnp.exp(log_prob - samples.behaviour_log_prob)
    # Another range than APPO's, which is [1 / (1 + c), 1 + c].
    clipped = losses.clamp(ratio, 1 - clip_ratio, 1 + clip_ratio)
    return StepLosses(
        policy=-jnp.minimum(ratio * samples.advantage, clipped * samples.advantage),
        value=value_losses(value, samples.behaviour_value, samples.target, clip_value),
        entropy=entropy,
        ratio=ratio,
    )


def combine(terms: StepLosses, value_coefficient: float, entropy_coefficient: float) -> Array:
    """The loss of each row, the weighted sum of its terms; float32 [N]."""
    return terms.policy + value_coefficient * terms.value - entropy_coefficient * terms.entropy


def describe(
    terms: StepLosses, valid: Array, clip_ratio: float, axis_name: str | None = None
) -> dict[str, Array]:
    """Means of the terms over the valid rows, of all devices; float32 scalars."""
    is_clipped = jnp.abs(terms.ratio - 1.0) > clip_ratio
    return {
        "loss/policy": reductions.mean(terms.policy, valid, axis_name),
        "loss/value": reductions.mean(terms.value, valid, axis_name),
        **losses.policy_metrics(terms.ratio, terms.entropy, is_clipped, valid, axis_name),
    }


def normalised(
    advantage: Array, valid: Array, axis_name: str | None = None, floor: float = 1e-8
) -> Array:
    """(A - mean) / standard deviation of advantages, both over the valid rows; float32 [N]."""
    mean, std = reductions.mean_and_std(advantage, valid, axis_name)
    return (advantage - mean) / jnp.maximum(std, floor)


def minibatches(key: Array, samples: int, size: int, epochs: int) -> Array:
    """Numbers of the samples in each minibatch, int32 [epochs, samples / size, size]; each epoch
    has every sample once.
    """
    keys = jax.random.split(key, epochs)
    return jax.vmap(lambda k: jax.random.permutation(k, samples))(keys).reshape(epochs, -1, size)
