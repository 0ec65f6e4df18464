"""Single keys from a terminal, without Enter and without waiting."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator

_ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left"}


@contextlib.contextmanager
def single_keys() -> Iterator[Callable[[float], str | None]]:
    """Gives a function that waits so many seconds for a key: 'up', 'left', ..., the character, or
    None.

    It raises EOFError if the terminal was closed. The terminal's settings come back at the end.
    """
    descriptor = sys.stdin.fileno()
    pending = b""
    before = termios.tcgetattr(descriptor)

    def key(timeout: float) -> str | None:
        nonlocal pending
        if not pending:
            # The descriptor itself: `sys.stdin` would buffer keys that `select` does not see.
            if not select.select([descriptor], [], [], timeout)[0]:
                return None
            pending = os.read(descriptor, 1024)
            if not pending:
                raise EOFError("the terminal was closed")
        length = 3 if pending[:3] in _ARROWS else 1
        data = pending[:length]
        pending = pending[length:]
        return _ARROWS.get(data, data.decode("latin-1"))

    # Not the raw mode, in which Ctrl-C would send no signal.
    tty.setcbreak(descriptor)
    try:
        yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def is_terminal() -> bool:
    """Whether a person can watch and press keys."""
    return sys.stdin.isatty() and sys.stdout.isatty()
