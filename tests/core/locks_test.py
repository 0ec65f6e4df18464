"""A folder has one owner."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from motif_jax.core import locks, tempdirs
from motif_jax.core.checked_lines import LineWriter
from motif_jax.core.errors import UserError


def test_a_folder_has_one_owner_until_its_process_dies(tmp_path: Path) -> None:
    holder_code = (
        "import sys, time\nfrom motif_jax.core.locks import FolderLock\n"
        "with FolderLock(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(60)"
    )
    command = [sys.executable, "-c", holder_code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        by = f"in use by process {holder.pid} on {socket.gethostname()}: wait for it, stop it, or choose another folder"
        with pytest.raises(UserError, match=f"^{tmp_path} is {by}$"), locks.FolderLock(tmp_path):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with locks.FolderLock(tmp_path):
            pass


def test_a_requeued_job_waits_for_a_lost_nodes_lock(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(locks, "LEASE_SECONDS", 30.0)
    monkeypatch.setattr(locks, "POLL_SECONDS", 0.01)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    holder = contextlib.ExitStack()
    holder.enter_context(locks.FolderLock(tmp_path))
    threading.Timer(0.1, holder.close).start()
    with locks.FolderLock(tmp_path):
        monkeypatch.setenv("SLURM_RESTART_COUNT", "0")
        with pytest.raises(UserError, match="in use"), locks.FolderLock(tmp_path):
            pass
    gone = pytest.raises(
        UserError,
        match=f"^{tmp_path}/new was removed while it was in use, and its contents are lost: remove",
    )
    with gone, locks.FolderLock(tmp_path / "new", "held", patience=0):
        holder = f"process {os.getpid()} on {socket.gethostname()}\n"
        assert (tmp_path / "new/held").read_text() == holder
        (tmp_path / "new/held").unlink()


def test_a_file_system_without_locks_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(UserError, match=rf"{tmp_path} .*without locks.*No locks"),
        locks.FolderLock(tmp_path),
    ):
        pass
    with pytest.raises(UserError, match=r"a\.jsonl .*without locks.*No locks"):
        LineWriter(tmp_path / "a.jsonl")
    with pytest.raises(UserError, match=rf"^TMPDIR={tmp_path.parent} .*without locks.*No locks"):
        tempdirs.hold(tmp_path)
    with open(tmp_path / "b", "w") as file, pytest.raises(UserError, match=r"b .*without locks"):
        locks.lock(file, tmp_path / "b", wait=True)
