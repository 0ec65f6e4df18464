"""Single keys from a terminal, without Enter and without waiting."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any

_ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left"}


class Keyboard:
    """While active, keys can be read one by one; the terminal's settings come back at the end."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno()
        self._before: list[Any] = []
        self._pending = b""

    def __enter__(self) -> Keyboard:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def key(self, timeout: float) -> str | None:
        """Waits up to `timeout` seconds for a key; returns 'up', 'left', ..., the character, or None.

        Raises:
          EOFError: the terminal was closed.
        """
        if not self._pending:
            ready, _, _ = select.select([self._descriptor], [], [], timeout)
            if not ready:
                return None
            self._pending = os.read(self._descriptor, 1024)
            if not self._pending:
                raise EOFError("the terminal was closed")
        length = 3 if self._pending[:3] in _ARROWS else 1
        data, self._pending = self._pending[:length], self._pending[length:]
        return _ARROWS.get(data, data.decode("latin-1"))


def is_terminal() -> bool:
    """Whether a person can watch and press keys."""
    return sys.stdin.isatty() and sys.stdout.isatty()
