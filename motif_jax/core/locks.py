"""Files and folders that one process owns."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from motif_jax.core.errors import UserError
from motif_jax.core.files import regular_file

LEASE_SECONDS = 180.0
POLL_SECONDS = 0.5
# A process that only asks whether a folder is held (`is_held`) holds it for a moment itself: a run
# that starts waits so long for any other.
GLANCE_SECONDS = 0.3
_GLANCE_POLL_SECONDS = 0.01
# The error about a folder that was removed during a run.
GONE = "while it was in use, and its contents are lost: remove what is there now, then give the command again"
_NO_LOCKS = "lies on a file system without locks: mount it with them (Lustre: -o flock), or choose another folder"


def lock(
    file: IO[Any] | int, path: str | os.PathLike[str], wait: bool = False, shared: bool = False
) -> bool:
    """Locks an open file until it is closed; without `wait` False: another process holds it. Raises
    UserError: `path` has no locks.

    Several processes may hold a `shared` lock, which a file that is open for reading allows.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        # Such a lock is the open file's, not the process's: a forked child that has it holds it,
        # too.
        fcntl.flock(file, kind | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:  # some network file systems are mounted without locks
        raise UserError(f"{path} {_NO_LOCKS} ({error.strerror})") from None
    return True


def is_held(folder: str | os.PathLike[str], name: str = ".lock") -> bool:
    """Whether a process holds `folder` by a `FolderLock`. Raises UserError: it lies on a file
    system without locks.
    """
    path = Path(folder) / name
    if not path.exists():
        return False
    # For reading, which another user's folder allows. Where nobody holds it, this process shares it
    # until the file is closed: a moment that a run which starts waits for.
    with open(path, encoding="utf-8", opener=regular_file) as file:
        return not lock(file, folder, shared=True)


@contextlib.contextmanager
def FolderLock(
    folder: str | os.PathLike[str], name: str = ".lock", patience: float | None = None
) -> Iterator[None]:
    """Holds `folder` for this process; the system unlocks it however the process ends. Waits
    `patience` seconds for another, and at least `GLANCE_SECONDS`.

    Raises UserError: another process holds it (its host and process id are named), it cannot be
    made or locked, or, at the end of a block without an error, it was removed meanwhile.
    """
    folder = Path(folder)
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(
                # Not emptied yet: until the lock is had, the file names its holder.
                open(folder / name, "a+", encoding="utf-8", opener=regular_file)
            )
        except OSError as error:
            raise UserError(f"{folder} cannot be made or written to: {error.strerror}") from None
        if patience is None:
            # After Slurm has requeued a job, network file systems keep the locks of a lost node
            # until its lease ends.
            is_requeued = os.environ.get("SLURM_RESTART_COUNT", "0") not in ("", "0")
            patience = LEASE_SECONDS if is_requeued else 0.0
        pause = POLL_SECONDS if patience > POLL_SECONDS else _GLANCE_POLL_SECONDS
        deadline = time.monotonic() + max(patience, GLANCE_SECONDS)
        while not lock(file, folder):
            if time.monotonic() < deadline:
                time.sleep(pause)
                continue
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UserError(
                f"{folder} is in use by {holder}: wait for it, stop it, or choose another folder"
            )
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield
        with contextlib.suppress(OSError):
            # Another folder of this name, with a lock file of its own, may have been made
            # meanwhile.
            if os.path.samestat(os.stat(folder / name), os.fstat(file.fileno())):
                return
        raise UserError(f"{folder} was removed {GONE}")
