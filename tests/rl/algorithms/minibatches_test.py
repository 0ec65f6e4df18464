"""Which rollouts the minibatches of an epoch hold, on one device and on several."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.rl.algorithms import ppo, trajectory
from tests.sets import extra

ROLLOUTS = 24
EPOCHS = 5
MINIBATCHES = 3


def drawn(devices: int, seed: int = 0) -> np.ndarray:
    """Each minibatch's rollouts, [epochs, minibatches, N], sorted, numbered in the whole batch."""
    share = ROLLOUTS // devices

    def order_of_device(first: Any) -> Any:
        key = jax.random.key(seed)
        return first + trajectory.minibatch_order(key, EPOCHS, MINIBATCHES, share, "device")

    order = jax.vmap(order_of_device, axis_name="device")(jnp.arange(devices) * share)
    return np.sort(np.moveaxis(order, 0, 1).reshape(EPOCHS, MINIBATCHES, -1))


def test_every_rollout_is_in_one_minibatch_of_an_epoch() -> None:
    rollouts = np.sort(drawn(1).reshape(EPOCHS, -1))
    np.testing.assert_array_equal(rollouts, np.tile(np.arange(ROLLOUTS), (EPOCHS, 1)))


def test_a_block_of_rollouts_is_shared_out_to_all_minibatches() -> None:
    blocks = drawn(1) // MINIBATCHES
    assert (blocks == np.arange(ROLLOUTS // MINIBATCHES)).all()


def test_minibatches_differ_from_block_to_block_and_epoch_to_epoch() -> None:
    dealt = drawn(1) % MINIBATCHES
    assert len(np.unique(dealt[0, 0])) > 1
    assert len(np.unique(dealt.reshape(EPOCHS, -1), axis=0)) == EPOCHS
    assert not np.array_equal(drawn(1), drawn(1, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("devices", [extra(2), 4, extra(8)])
def test_minibatches_do_not_depend_on_the_number_of_devices(devices: int) -> None:
    np.testing.assert_array_equal(drawn(devices), drawn(1))


def test_minibatches_of_samples_hold_each_once_an_epoch() -> None:
    order = np.asarray(ppo.minibatches(jax.random.key(0), 12, 4, EPOCHS))
    assert order.shape == (EPOCHS, 3, 4)
    np.testing.assert_array_equal(
        np.sort(order.reshape(EPOCHS, -1)), np.tile(np.arange(12), (EPOCHS, 1))
    )
    assert len(np.unique(order.reshape(EPOCHS, -1), axis=0)) == EPOCHS
