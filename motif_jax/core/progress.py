"""A progress line: done, rate and time left."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from motif_jax.core.errors import printable

PLAIN_INTERVAL_SECONDS = 10.0
_WINDOW_SECONDS = 30.0
# A shorter time between the first unit and the last has no rate: units that were asked together
# also end together, after seconds of work.
_LEAST_MEASURED_SECONDS = 0.5

_MINUTE = 60
_HOUR = 3600
_DAY = 86400


def format_seconds(seconds: float) -> str:
    """A duration as people say it: '8 s', '3 min 20 s', '5 h 2 min', '3 d 4 h'."""
    seconds = max(0, round(seconds))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < _HOUR:
        return _two_units(seconds, _MINUTE, "min", 1, "s")
    if seconds < 2 * _DAY:
        return _two_units(seconds, _HOUR, "h", _MINUTE, "min")
    return _two_units(seconds, _DAY, "d", _HOUR, "h")


def _two_units(seconds: int, unit: int, name: str, smaller_unit: int, smaller_name: str) -> str:
    text = f"{seconds // unit} {name}"
    rest = seconds % unit // smaller_unit
    return f"{text} {rest} {smaller_name}" if rest else text


def format_number(value: float | int | str) -> str:
    """Returns a number in at most about six characters and thousands separated, a string as it
    is.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,d}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


class Progress:
    """A live line on a terminal, one plain line every 10 seconds elsewhere (a log file, a pipe).

    `unit` names what is counted ('pairs'); `initial` units were done before a resumed run and do
    not count in the rate.
    """

    def __init__(
        self,
        total: int,
        unit: str,
        description: str,
        initial: int = 0,
        stream: TextIO | None = None,
    ) -> None:
        self._total = total
        self._unit = unit
        self._description = description
        self._stream = stream or sys.stderr
        self._console = Console(file=self._stream)
        self._live: Live | None = None
        self._initial = initial
        self._done = initial
        self._fields: dict[str, float | int | str] = {}
        self._history: deque[tuple[float, int]] = deque()
        self._started = self._printed = 0.0
        # Units and fields of the newest plain line.
        self._last_plain_line: tuple[int, dict[str, float | int | str]] | None = None

    def __enter__(self) -> Progress:
        self._started = self._printed = time.monotonic()
        if self._console.is_terminal:
            self._live = Live(
                Text(self.line()), console=self._console, refresh_per_second=4, transient=False
            )
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.update(Text(self.line()), refresh=True)
            self._live.stop()
        # Unless the newest plain line says the same.
        elif self._last_plain_line != (self._done, self._fields):
            print(self.line(), file=self._stream, flush=True)

    def update(self, done: int, **fields: float | int | str) -> None:
        """Shows that `done` units (an absolute count) are done, then `fields`."""
        now = time.monotonic()
        self._done = done
        # time is measured from the first unit on: programs are compiled before
        if done != self._initial:
            self._history.append((now, done))
        # Two entries stay, however old they are: a unit may take longer than the window.
        while len(self._history) > 2 and now - self._history[1][0] > _WINDOW_SECONDS:
            self._history.popleft()
        self.show(**fields)

    def show(self, **fields: float | int | str) -> None:
        """Shows fields that changed since the last unit was done, as a sign of life where a unit
        takes minutes.
        """
        now = time.monotonic()
        self._fields.update(fields)
        if self._live is not None:
            self._live.update(Text(self.line()))
        elif now - self._printed >= PLAIN_INTERVAL_SECONDS:
            self._printed = now
            self._last_plain_line = (self._done, dict(self._fields))
            print(self.line(), file=self._stream, flush=True)

    def log(self, text: str) -> None:
        """Prints lines of their own above the progress line."""
        text = "\n".join(map(printable, text.split("\n")))
        if self._live is not None:
            self._console.print(Text(text))
        else:
            print(text, file=self._stream, flush=True)

    def rate(self) -> float:
        """Units a second over the last half minute, 0 before half a second was measured."""
        if not self._history:
            return 0.0
        start, first = self._history[0]
        end, last = self._history[-1]
        is_measured = end - start >= _LEAST_MEASURED_SECONDS
        return (last - first) / (end - start) if is_measured else 0.0

    def line(self) -> str:
        # The last batch of a training may go beyond its last step.
        share = f"{min(100, 100 * self._done / self._total):.0f} %" if self._total else ""
        parts = [f"{self._description}  {self._done:,} / {self._total:,} {self._unit}  {share}"]
        elapsed = time.monotonic() - self._started if self._started else 0.0
        rate = self.rate()
        # All came at once: the rate is that of the whole time.
        if not rate and self._done >= self._total and elapsed:
            rate = (self._done - self._initial) / elapsed
        if rate > 0:
            parts.append(f"{format_number(rate)} {self._unit}/s")
        if self._done >= self._total:
            parts.append(f"took {format_seconds(elapsed)}")
        elif rate > 0:
            parts.append(f"{format_seconds((self._total - self._done) / rate)} left")
        parts += [
            f"{name.replace('_', ' ')} {format_number(value)}"
            for name, value in self._fields.items()
        ]
        return printable("  ".join(parts))
