"""Hands parameters from the learner to inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

Place: TypeAlias = jax.Device | jax.sharding.Sharding  # a device, or several that hold an array together


class Published(NamedTuple):
    """Parameters, prepared for acting, and the number of updates behind them."""

    version: int
    params: Any


class Publisher:
    """Holds for every acting device its own copy of the newest parameters, made by the learner between two updates.

    A reader gets one whole version, never the learner's own arrays, whose memory the next update takes over. The `devices` of a
    split model are its sharding. `prepare` makes what acts (`AgentNetwork.prepare`); `frozen` parameters are copied once.
    """

    def __init__(
        self,
        devices: Sequence[Place],
        prepare: Callable[[Any], Any],
        frozen: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._devices = devices
        self._frozen = {place: jax.device_put(dict(frozen), place) for place in devices}
        self._copy = jax.jit(lambda params: prepare(jax.tree.map(jnp.copy, params)))
        self._published: dict[Place, Published] = {}

    def publish(self, version: int, params: Any, frozen: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Starts copying `params` to all acting devices. `frozen` is not copied: nobody may act while updates run."""
        copy = self._copy(params)
        for device in self._devices:
            # An array that is split over devices stays split.
            there = jax.device_put(copy, device) if isinstance(device, jax.Device) else copy
            fixed = self._frozen[device] or frozen
            self._published[device] = Published(version, {**there, **fixed} if fixed else there)

    def newest(self, device: Place) -> Published:
        return self._published[device]
