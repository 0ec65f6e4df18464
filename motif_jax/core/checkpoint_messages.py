"""What a user reads of checkpoints that are damaged or cannot be written."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import sys
from pathlib import Path

import jax

from motif_jax.core.errors import first_line
from motif_jax.core.files import NO_ROOM


@functools.cache
def warn_once(line: str) -> None:
    """Prints a warning on the first host; cached, so once in a process."""
    if jax.process_index() == 0:
        print(f"warning: {line}", file=sys.stderr, flush=True)


def write_error(error: BaseException, folder: Path) -> str:
    """Why a write failed, in a few words: Orbax's error of a full disk has pages."""
    # Errors that were raised in Orbax's compiled parts have no errno, only the system's words for
    # it.
    number = next((number for number in NO_ROOM if os.strerror(number) in str(error)), None)
    if number is None:
        return first_line(error)
    reason = os.strerror(number)
    if number == errno.ENOSPC:
        reason += f" ({shutil.disk_usage(folder).free / 1e6:,.1f} MB are free there)"
    return reason
