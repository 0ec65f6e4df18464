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
# The error about a folder that was removed during a run.
GONE = "while it was in use, and its contents are lost: remove what is there now, then give the command again"
_NO_LOCKS = "lies on a file system without locks: mount it with them (Lustre: -o flock), or choose another folder"


def lock(file: IO[Any] | int, path: str | os.PathLike[str], wait: bool = False) -> bool:
    """Locks an open file until it is closed; without `wait` False: another process holds it. Raises
    UserError: `path` has no locks.
    """
    try:
        # Such a lock is the open file's, not the process's: a forked child that has it holds it,
        # too.
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:  # some network file systems are mounted without locks
        raise UserError(f"{path} {_NO_LOCKS} ({error.strerror})") from None
    return True


@contextlib.contextmanager
def FolderLock(
    folder: str | os.PathLike[str], name: str = ".lock", patience: float | None = None
) -> Iterator[None]:
    """Holds `folder` for this process; the system unlocks it however the process ends. Waits
    `patience` seconds for another.

    Raises UserError: another process holds it (its host and process id are named), it cannot be
    locked, or, at the end of a block without an error, it was removed meanwhile.
    """
    folder = Path(folder)
    with contextlib.ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        # Not emptied yet: until the lock is had, the file names its holder.
        file = stack.enter_context(open(folder / name, "a+", encoding="utf-8", opener=regular_file))
        if patience is None:
            # After Slurm has requeued a job, network file systems keep the locks of a lost node
            # until its lease ends.
            is_requeued = os.environ.get("SLURM_RESTART_COUNT", "0") not in ("", "0")
            patience = LEASE_SECONDS if is_requeued else 0.0
        deadline = time.monotonic() + patience
        while not lock(file, folder):
            if time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
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
