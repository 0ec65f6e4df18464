"""Clocks that a test sets, in place of the module `time` in a module under test:
`monkeypatch.setattr(module, "time", HandClock())`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable


class HandClock:
    """Shows `now` seconds, which a test sets."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now


class TickingClock:
    """Shows the next of `readings` (seconds) at every look, by whichever name; its time of day is
    always 0.
    """

    def __init__(self, readings: Iterable[float]) -> None:
        self._readings = iter(readings)

    def monotonic(self) -> float:
        return next(self._readings)

    perf_counter = monotonic
    process_time = monotonic

    def time(self) -> float:
        return 0.0


class AheadClock:
    """Shows the real time and `ahead` seconds more, which a test sets."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead
