"""Writes a page again and again while a training goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from motif_jax.core.interruption import EXIT_CODE, Interruption
from motif_jax.core.locks import is_held

_POLL_SECONDS = 0.2


def follow(run: Path, seconds: int, write: Callable[[bool], None]) -> int | None:
    """Calls `write(is_running)` every `seconds` while a process holds the folder `run`, and once
    more after it has ended.

    Returns the exit code of an interruption, which waits for no further page; else None.
    """
    with Interruption(quiet=True) as stop:
        while True:
            # Asked before the page is made: what a run writes at its very end must not be missed.
            is_running = is_held(run)
            write(is_running)
            if not is_running:
                return None
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                if stop.requested:
                    return EXIT_CODE
                time.sleep(_POLL_SECONDS)
