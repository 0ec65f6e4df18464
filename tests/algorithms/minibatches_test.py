"""Which rollouts the minibatches of an epoch hold, on one device and on several."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.algorithms import minibatches

ROLLOUTS, EPOCHS, MINIBATCHES = 24, 5, 3


def drawn(devices: int | None = None) -> np.ndarray:
    """The numbers in the whole batch of every minibatch's rollouts, [epochs, minibatches, N], sorted."""
    share = ROLLOUTS // (devices or 1)

    def core(first: Any, axis: str | None = "device") -> Any:
        return first + minibatches.order(jax.random.key(0), EPOCHS, MINIBATCHES, share, axis)

    starts = jnp.arange(devices or 1) * share
    order = jax.vmap(core, axis_name="device")(starts) if devices else core(0, None)[None]
    return np.sort(np.moveaxis(order, 0, 1).reshape(EPOCHS, MINIBATCHES, -1))


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_minibatches_do_not_depend_on_the_number_of_devices(devices: int) -> None:
    np.testing.assert_array_equal(drawn(devices), drawn())
