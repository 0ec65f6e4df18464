"""Temporary folders of engines, removed with their processes, however these end.

A pool's folder holds one for each process, and a lock that they and the pool hold: a folder whose lock is free was
abandoned.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from motif_jax.support import tempdirs


def _prefix() -> str:
    return f"motif_jax_actors_{os.getuid()}_"


def create() -> tuple[Path, int]:
    """Makes a pool's folder, and removes those that killed runs have left; returns it and its lock's descriptor."""
    sweep()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_prefix()))
        descriptor = tempdirs.hold(folder)
        if descriptor is not None:  # another pool can have swept before the lock was held
            return folder, descriptor


def renew(folder: Path, number: int) -> Path:
    """An empty folder for a process that starts; what its predecessor left there is removed."""
    own = folder / str(number)
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    return own


def remove_own(own: Path, parent_lives: bool) -> None:
    """Removes the folder of a process that ends, and the pool's if this was the last and the pool's process is dead."""
    if not tempdirs.has_lock(own.parent):
        return  # somebody has started this by hand, and that is any folder of theirs
    shutil.rmtree(own, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        if not parent_lives and not any(entry.is_dir() for entry in own.parent.iterdir()):
            remove_pool(own.parent)


def remove_pool(folder: Path) -> None:
    """Removes a pool's folder, whose processes have ended."""
    if tempdirs.has_lock(folder):
        shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Removes folders that killed runs of this user left."""
    parent = Path(tempfile.gettempdir())
    tempdirs.remove_abandoned(parent, _prefix())
    tempdirs.remove_abandoned(parent)
