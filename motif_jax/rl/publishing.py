"""Hands parameters from the learner to inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

# a device, or several that hold an array together
Placement: TypeAlias = jax.Device | jax.sharding.Sharding


class Published(NamedTuple):
    """Parameters, prepared for acting, and the number of updates before them."""

    version: int
    params: Any


class Publisher:
    """Holds for every acting device its own copy of the newest parameters, made by the learner
    between two updates.

    A reader gets one complete version, never the learner's own arrays, whose memory the next update
    takes over.

    Args:
      devices: those that act; for a split model its sharding alone.
      prepare: turns parameters into acting parameters (`PolicyNetwork.prepare`).
      frozen: parameters that never change; they are copied once.

    Attributes:
      copy_program: the compiled copy of the learner's parameters, prepared for acting.
    """

    def __init__(
        self,
        devices: Sequence[Placement],
        prepare: Callable[[Any], Any],
        frozen: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._devices = devices
        self._frozen = {device: jax.device_put(dict(frozen), device) for device in devices}
        self.copy_program = jax.jit(lambda params: prepare(jax.tree.map(jnp.copy, params)))
        self._published: dict[Placement, Published] = {}

    def publish(
        self, version: int, params: Any, frozen: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Starts copying `params` to all acting devices. `frozen` is not copied: nobody may act
        while updates run.
        """
        copy = self.copy_program(params)
        for device in self._devices:
            # An array that is split over devices stays split.
            acting = jax.device_put(copy, device) if isinstance(device, jax.Device) else copy
            frozen_here = self._frozen[device] or frozen
            if frozen_here:
                acting = {**acting, **frozen_here}
            # One assignment, which readers in other threads see whole or not at all: no lock.
            self._published[device] = Published(version, acting)

    def newest(self, device: Placement) -> Published:
        """The newest parameters on an acting device."""
        return self._published[device]
