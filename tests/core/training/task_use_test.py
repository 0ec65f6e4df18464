"""The share of the devices' peak that a training uses, and the operations of a gradient."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.devices.flops import gradient_flops
from motif_jax.core.training import task_use
from motif_jax.core.training.task_use import TaskUse
from tests.clocks import HandClock
from tests.made_up_devices import MadeUpDevice

ROWS = 4
INNER = 8
OUTER = 16
MICRO_BATCHES = 3
STEPS = 5


@dataclasses.dataclass(frozen=True)
class Parallel:
    """Stands for a `DataParallel`, whose devices alone are read."""

    devices: list[MadeUpDevice]


class State(NamedTuple):
    params: Any
    step: Any


class TwoLayers:
    """A frozen layer and a trained one, whose inputs have no gradient."""

    def computation(self) -> tuple[str, str]:
        return "bfloat16", "default"

    def counted_loss(self, state: State, shared: jax.Array, batch: jax.Array) -> jax.Array:
        def loss(params: jax.Array) -> jax.Array:
            return jnp.sum((batch @ shared) @ params)

        return jax.checkpoint(loss)(state.params)


def two_devices(kind: str) -> tuple[TaskUse, tuple[State, np.ndarray, np.ndarray]]:
    """The use of two devices of a kind, and the arguments of its `add` for five steps: state,
    frozen layer, batches.
    """
    use = TaskUse(TwoLayers(), Parallel([MadeUpDevice(kind)] * 2))  # type: ignore[arg-type]
    state = State(np.zeros((OUTER, OUTER), np.float32), np.int32(0))
    frozen = np.zeros((INNER, OUTER), np.float32)
    batches = np.zeros((STEPS, MICRO_BATCHES, ROWS, INNER), np.float32)
    return use, (state, frozen, batches)


def test_the_share_of_all_devices_since_the_last_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock(10.0)
    monkeypatch.setattr(task_use, "time", clock)
    use, arguments = two_devices("NVIDIA H100 80GB HBM3")
    frozen = 2.0 * ROWS * INNER * OUTER
    trained = 2.0 * ROWS * OUTER * OUTER
    flops = STEPS * MICRO_BATCHES * (frozen + 2 * trained)

    use.add(*arguments, STEPS)
    clock.now = 12.0

    assert math.isclose(use.read()["throughput/mfu"], flops / 2.0 / (2 * 989e12))
    clock.now = 13.0
    assert use.read() == {"throughput/mfu": 0.0}


def test_nothing_is_counted_on_a_device_of_unknown_peak() -> None:
    use, arguments = two_devices("cpu")

    use.add(*arguments, STEPS)

    assert use.read() == {}


def test_each_factor_with_a_gradient_costs_another_product() -> None:
    x = jnp.zeros((2, 3))
    y = jnp.zeros((3, 5))
    jaxpr = jax.make_jaxpr(lambda x, y: x @ y)(x, y).jaxpr
    product = 2.0 * 2 * 3 * 5
    assert gradient_flops(jaxpr, [False, False]) == product
    assert gradient_flops(jaxpr, [False, True]) == 2 * product
    assert gradient_flops(jaxpr, [True, True]) == 3 * product
    loop = jax.make_jaxpr(lambda x: jax.lax.scan(lambda c, _: (c @ c, None), x, None, length=4)[0])(
        jnp.zeros((3, 3))
    )
    assert gradient_flops(loop.jaxpr, [True]) == 4 * 3 * 2.0 * 27
