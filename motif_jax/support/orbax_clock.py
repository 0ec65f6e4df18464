"""Gives Orbax a clock that only goes on, for the time it waits.

It gives up a save after 20 minutes, and measures them by the clock of the wall. Set forward while a checkpoint is written, as by a time
server after a wrong start, that clock ends a training; set back, it lets threads wait for as long as it was set back.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

# Where Orbax waits with an end; what it writes of the time of day is elsewhere.
_WAITING = (
    "orbax.checkpoint._src.futures.future",
    "orbax.checkpoint._src.futures.signaling_client",
    "orbax.checkpoint.experimental.v1._src.handlers.pytree_handler",
    "orbax.checkpoint.experimental.v1._src.synchronization.compatibility",
)


class _Steady:
    """The module `time`, whose `time` is `monotonic`."""

    time = staticmethod(time.monotonic)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


_STEADY = _Steady()


def use() -> None:
    """Does so from now on.

    Raises:
      AttributeError: this Orbax keeps its time otherwise; then this module is to be looked at again.
    """
    for name in _WAITING:
        module: Any = importlib.import_module(name)
        if module.time is time:
            module.time = _STEADY
