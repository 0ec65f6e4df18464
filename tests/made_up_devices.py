"""Devices that this machine does not have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class MadeUpDevice:
    """The attributes of a `jax.Device` that the package reads where it holds no arrays.

    Attributes:
      device_kind: its name.
      platform, id: 'gpu' or 'cpu', and its number there.
      stats: what its memory reports, in bytes; None where it reports nothing.
    """

    device_kind: str = "NVIDIA H200"
    platform: str = "gpu"
    id: int = 0
    stats: Mapping[str, int] | None = None

    def memory_stats(self) -> Mapping[str, int] | None:
        return self.stats
