"""Divides a batch's rollouts into minibatches, the same on any number of devices.

The rollouts of the GLOBAL batch are numbered through all devices and cut into blocks of as many
rollouts as there are minibatches. Each block deals one rollout, at random, to each minibatch. So no
rollout leaves its device, and a minibatch has equally many rollouts of each device. It is the same
on any number of devices whose shares are whole blocks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from motif_jax.rl.algorithms import trajectory
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch


def order(key: Array, epochs: int, minibatches: int, rollouts: int, axis_name: str | None) -> Array:
    """Draws the minibatches of every epoch, in which every rollout is used once.

    Args:
      key: random key, the same on all devices.
      rollouts: number of this device's rollouts, a multiple of the minibatches.
      axis_name: mapped axis over which the batch is split, in order; None where it is not.

    Returns:
      int32 [epochs * minibatches, rollouts / minibatches], numbers of this device's rollouts.
    """
    blocks = rollouts // minibatches
    local_block = jnp.arange(blocks)
    global_block = local_block
    if axis_name is not None:
        global_block = local_block + jax.lax.axis_index(axis_name) * blocks

    def epoch(key: Array) -> Array:
        # A block's draw depends on its global number alone, not on the number of devices.
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, global_block)
        position_in_block = jax.vmap(lambda k: jax.random.permutation(k, minibatches))(keys)
        # [minibatches, blocks]: which rollout of each block a minibatch gets.
        return (local_block[:, None] * minibatches + position_in_block).T

    return jax.vmap(epoch)(jax.random.split(key, epochs)).reshape(-1, blocks)


def take(batch: TrajectoryBatch, reward: Array, chosen: Array) -> tuple[TrajectoryBatch, Array]:
    """The rollouts with numbers `chosen`, int32 [N], of a batch and of its rewards [T, B]."""
    # Rollouts are axis 1, and axis 0 of the recurrent states.
    axes = jax.tree.broadcast(trajectory.BATCH_AXES, batch)
    minibatch = jax.tree.map(lambda x, axis: jnp.take(x, chosen, axis=axis), batch, axes)
    return minibatch, jnp.take(reward, chosen, axis=1)
