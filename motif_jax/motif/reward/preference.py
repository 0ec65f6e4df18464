"""Learning a reward from preferences: the loss of a pair, its metrics, and the training step of one
device.

    L = mean over pairs of  - sum_k q_k log softmax(r_1, r_2)_k

q is the target distribution over (first is better, second is better): (1, 0), (0, 1), or (1/2, 1/2)
for a tie (Klissarov et al. 2023, eq. 1; Bradley and Terry 1952). The reward of a sub-sequence is
the mean over its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from motif_jax.core.training import ensembles, reductions
from motif_jax.core.training.ensembles import EnsembleState
from motif_jax.core.verdicts import TIE
from motif_jax.nets.reward import RewardNetwork

# A jax array; on the host a numpy array; in a description of how to split a batch, the number of an
# axis.
Field = Any


class PreferenceBatch(NamedTuple):
    """Pairs of one step on one device; every leaf may have leading axes of devices and steps.

    Attributes:
      unique: int32 [U], indices of this part's messages among the data set's distinct ones; any
          index as padding.
      inverse: int32 [B, 2, L], index in `unique` of each step; where the model reads no message
          only its shape matters.
      rows: the other observation fields that the model reads, [B, 2, L, ...] each.
      targets: float32 [B, 2], q.
      weights: float32 [members, B], 0 for padding and for pairs that do not count.
      labels: int8 [B], 0, 1, or 2 for ties, for the accuracy.
    """

    unique: Field
    inverse: Field
    rows: Mapping[str, Field]
    targets: Field
    weights: Field
    labels: Field


def pair_loss(rewards: jax.Array, targets: jax.Array) -> jax.Array:
    """-sum_k q_k log softmax(rewards)_k of each pair, float32 [...], of rewards and targets q
    [..., 2]; q sums to 1.
    """
    chex.assert_equal_shape_suffix([rewards, targets], 1)
    # Computed from the difference alone, so that the gradients of the two rewards are opposite to
    # the last bit.
    difference = rewards[..., 0] - rewards[..., 1]
    return targets[..., 0] * jax.nn.softplus(-difference) + targets[..., 1] * jax.nn.softplus(
        difference
    )


def correct(rewards: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whether rewards [B, 2] order each pair as its label [B] does, and whether it counts: bool [B]
    each; ties do not.

    Equal rewards choose the first, as argmax does.
    """
    chex.assert_shape(rewards, (labels.shape[0], 2))
    counted = labels < TIE
    return (jnp.argmax(rewards, axis=-1) == labels) & counted, counted


def step_rewards(
    network: RewardNetwork,
    params: Any,
    messages: jax.Array,
    batch: PreferenceBatch,
    max_length: int | None,
) -> jax.Array:
    """Rewards of every step of the sub-sequences under ONE model, each distinct message encoded
    once: float32 [B, 2, L].

    Args:
      messages: uint8 [M, 256], the data set's distinct messages.
      max_length: bytes of all messages from here on are zero (static).
    """
    if network.architecture.message_only:
        rewards = network.reward(params, {"message": messages[batch.unique]}, max_length)
        return rewards[batch.inverse]
    # Other fields differ from step to step: messages are encoded once, all else for each step.
    inputs = {name: rows.reshape(-1, *rows.shape[3:]) for name, rows in batch.rows.items()}
    if "message" in network.architecture.fields:
        features = network.message_features(params, messages[batch.unique], max_length)
        # Gathered in float32, so that the gradients of a message that many pairs show are summed in
        # float32.
        step_features = features.astype(jnp.float32)[batch.inverse.reshape(-1)]
        inputs["message_features"] = step_features.astype(features.dtype)
    return network.reward(params, inputs).reshape(batch.inverse.shape)


@jax.custom_vjp
def _gather_exactly(values: jax.Array, indices: jax.Array) -> jax.Array:
    """values[indices], with a gradient whose sums are exact."""
    return values[indices]


def _gather_forward(
    values: jax.Array, indices: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return values[indices], (values, indices)


def _gather_backward(
    saved: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, None]:
    values, indices = saved
    # Whole multiples of a power of two: sums below 2^24 of them have no rounding in float32, in any
    # order.
    _, exponent = jnp.frexp(jnp.sum(jnp.abs(gradient)))
    # The bound keeps the unit of a vanishing gradient above the smallest float32.
    unit = jnp.ldexp(jnp.float32(1.0), jnp.maximum(exponent, -100) - 24)
    rounded = jnp.round(gradient / unit) * unit
    return jnp.zeros_like(values).at[indices].add(rounded), None


_gather_exactly.defvjp(_gather_forward, _gather_backward)


def pair_rewards(
    network: RewardNetwork,
    params: Any,
    messages: jax.Array,
    batch: PreferenceBatch,
    max_length: int | None,
) -> jax.Array:
    """Rewards of the sub-sequences, means of `step_rewards` over the length: float32 [B, 2].

    A constant added to all rewards changes no loss, so the gradients of the distinct messages'
    rewards sum to 0, here without rounding. A rounded sum would give parameters whose true gradient
    is 0 a small gradient, of which Adam makes whole steps.
    """
    if not network.architecture.message_only:
        return jnp.mean(step_rewards(network, params, messages, batch, max_length), axis=-1)
    distinct = network.reward(params, {"message": messages[batch.unique]}, max_length)
    return jnp.mean(_gather_exactly(distinct, batch.inverse), axis=-1)


def make_loss(
    network: RewardNetwork, members: int, max_length: int | None, axis_name: str | None
) -> Callable[[Any, jax.Array, PreferenceBatch], tuple[jax.Array, dict[str, jax.Array]]]:
    """Returns `loss(params, messages, batch) -> (value, metrics)` of one device's part of a batch
    (Klissarov et al. 2023, eq. 1).

    The value, summed over the members of an ensemble and over `axis_name`, is the loss of the whole
    batch, in nats a pair: each member divides by the sum of its weights on all devices. So are the
    metrics: `loss` (mean over members), `accuracy` of the members' mean reward without ties,
    `pairs` and `counted` (without ties).

    Args of the factory:
      members: size of the ensemble; above 1 the leaves of `params` have an axis of members in
          front.
      max_length: bytes of all messages from here on are zero (static); None: all are read.
      axis_name: axis of the devices that share the batch; None: one device has it.

    Args of the loss:
      params: of `network`.
      messages: uint8 [M, 256], the data set's distinct messages.
      batch: B pairs; see `PreferenceBatch`.

    Returns of the loss: float32 scalars; `pairs` and `counted` are int32.
    """

    def loss(
        params: Any, messages: jax.Array, batch: PreferenceBatch
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        chex.assert_shape(batch.weights, (members, batch.targets.shape[0]))
        # float32 [members, B, 2]
        if members == 1:
            rewards = pair_rewards(network, params, messages, batch, max_length)[None]
        else:
            member_rewards = jax.vmap(pair_rewards, in_axes=(None, 0, None, None, None))
            rewards = member_rewards(network, params, messages, batch, max_length)

        # Divided by the weight of the whole batch, so that the devices' parts add up to its mean.
        pair_losses = pair_loss(rewards, batch.targets) * batch.weights
        # At least 1e-12: a batch may be of dropped ties alone, or have no pair of a member's
        # sample.
        weight = jnp.maximum(reductions.psum(jnp.sum(batch.weights, axis=1), axis_name), 1e-12)
        member_losses = jnp.sum(pair_losses, axis=1) / weight

        # Of the members' mean, which is what an agent is paid by.
        is_correct, counted = correct(jnp.mean(rewards, axis=0), batch.labels)
        # Weight 0 for all members: padding, or a pair that does not count.
        present = jnp.any(batch.weights > 0, axis=0)
        num_counted = reductions.total(counted & present, axis_name)
        metrics = {
            "loss": reductions.psum(jnp.mean(member_losses), axis_name),
            "accuracy": reductions.total(is_correct & present, axis_name)
            / jnp.maximum(num_counted, 1),
            "pairs": reductions.total(present, axis_name),
            "counted": num_counted,
        }
        # The members share no parameters: the gradient of the sum is each one's own.
        return jnp.sum(member_losses), jax.lax.stop_gradient(metrics)

    return loss


def make_train_step(
    network: RewardNetwork,
    optimizer: optax.GradientTransformation,
    members: int = 1,
    max_length: int | None = None,
    axis_name: str | None = None,
) -> Callable[
    [EnsembleState, jax.Array, PreferenceBatch], tuple[EnsembleState, dict[str, jax.Array]]
]:
    """Returns `step(state, messages, batch) -> (state, metrics)`, as if each member had one device
    and the whole batch.
    """
    loss = make_loss(network, members, max_length, axis_name)
    return ensembles.make_train_step(loss, optimizer, members, axis_name)
