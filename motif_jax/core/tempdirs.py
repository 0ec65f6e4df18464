"""Makes temporary folders (an engine's levels, imported weights) inside one folder of the process.

The process removes its folder at its end; the next process removes that of a killed one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import util
from pathlib import Path

from motif_jax.core import locks
from motif_jax.core.errors import UserError

_LOCK = "lock"
_YOUNG_SECONDS = 60.0


def _prefix() -> str:
    return f"motif_jax_games_{os.getuid()}_"


def hold(folder: Path) -> int | None:
    """Locks `folder` while the descriptor is open, here or in a child; None: another process holds
    or has removed it.
    """
    try:
        descriptor = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    # A file without a link was removed after it was opened here: its lock protects nothing.
    if locks.lock(descriptor, f"TMPDIR={folder.parent}") and os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)
    return None


def remove_abandoned() -> None:
    """Removes the folders that killed processes of this user left; what cannot be removed stays."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_prefix()}*"):
        with contextlib.suppress(OSError, UserError):
            if _is_own(folder) and not _is_just_being_made(folder):
                _remove_unless_held(folder)


def _is_own(folder: Path) -> bool:
    # Not through a link: in a shared TMPDIR anybody may make one of this name.
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _is_just_being_made(folder: Path) -> bool:
    # Another process has no lock file yet between its `mkdtemp` and its `hold`.
    age = time.time() - folder.stat().st_mtime
    return not (folder / _LOCK).exists() and age < _YOUNG_SECONDS


def _remove_unless_held(folder: Path) -> None:
    descriptor = hold(folder)
    if descriptor is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


@functools.cache
def process_folder(process: int) -> Path:
    """The folder of the process with this id: a forked child makes its own."""
    remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=_prefix()))
    # The descriptor stays open without a variable: the lock ends with this process, however it
    # ends.
    while hold(folder) is None:  # removed by another process before it was locked
        folder = Path(tempfile.mkdtemp(prefix=_prefix()))
    # After multiprocessing has removed its own folder, which may lie inside; not in forked
    # children.
    util.Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=-200)
    return folder


def remove_own() -> None:
    """Removes the folder of this process; for processes that end without `atexit`'s functions."""
    shutil.rmtree(process_folder(os.getpid()), ignore_errors=True)


@contextlib.contextmanager
def own_folders() -> Iterator[str]:
    """Makes `tempfile` create folders inside the folder of this process, and yields that folder."""
    # The module's global decides: nle makes a game's folder through `tempfile` and takes no place
    # for it.
    previous = tempfile.tempdir
    folder = process_folder(os.getpid())
    tempfile.tempdir = str(folder)
    try:
        yield str(folder)
    finally:
        tempfile.tempdir = previous
