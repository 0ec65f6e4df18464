"""Parameters on their way from the learner to inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Published(NamedTuple):
    """Parameters, prepared for acting, and the number of updates behind them."""

    version: int
    params: Any


class Publisher:
    """Holds for every device that acts its own copy of the newest parameters.

    The copies are made by the learner between two updates; whoever reads gets one whole version, and never the
    learner's own arrays, whose memory the next update takes over.

    Args:
      devices: those that act.
      prepare: pure function of the parameters, whose result acts in their place (`AgentNetwork.prepare`).
    """

    def __init__(self, devices: list[jax.Device], prepare: Callable[[Any], Any]) -> None:
        self._devices = devices
        self._copy = jax.jit(lambda params: prepare(jax.tree.map(jnp.copy, params)))
        self._published: dict[jax.Device, Published] = {}

    def publish(self, version: int, params: Any) -> None:
        """Starts copying `params` (replicated over the learner's devices) and makes the copies the newest."""
        copy = self._copy(jax.tree.map(lambda x: x.addressable_data(0), params))
        for device in self._devices:
            self._published[device] = Published(version, jax.device_put(copy, device))

    def newest(self, device: jax.Device) -> Published:
        """The newest parameters on `device`."""
        return self._published[device]
