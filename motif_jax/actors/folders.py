"""Temporary folders of engines, which go with their processes, whichever way these end.

A pool's folder holds one for each worker and a lock that the pool and all its workers hold: a folder whose lock can be
had belongs to nobody any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "motif_jax_actors_"
_LOCK = "lock"


def create() -> tuple[Path, int]:
    """Makes a pool's folder, and removes those that killed runs have left; returns it and its lock's descriptor."""
    _sweep()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if (folder / _LOCK).exists():
            return folder, descriptor
        os.close(descriptor)  # another pool swept before the lock was held


def renew(folder: Path, worker: int) -> Path:
    """An empty folder for a worker that starts; what its predecessor left there is removed."""
    own = folder / str(worker)
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    return own


def remove_own(own: Path, parent_lives: bool) -> None:
    """Removes the folder of a worker that ends, and the pool's if this was the last and the pool's process is dead."""
    shutil.rmtree(own, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        if not parent_lives and not any(entry.is_dir() for entry in own.parent.iterdir()):
            shutil.rmtree(own.parent, ignore_errors=True)


def _sweep() -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with (
            contextlib.suppress(OSError),
            open(lock, "rb") as file,
        ):  # in use, or swept by another, or not ours
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
