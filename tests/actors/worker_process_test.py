"""Worker processes of episodes and the process that has started them."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import sys
import termios
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from motif_jax.actors.worker_process import WorkerProcess
from motif_jax.support.lifeline import GRACE_SECONDS
from tests.processes import REPOSITORY, Program, descendants, still_there, wait_until

# The worker never comes back, and never lets another thread of Python run.
PARENT = """
import collections, itertools, time
from pathlib import Path
from motif_jax.actors.worker_process import WorkerProcess

def be_stuck(connection, setup):
    Path(setup["stuck"]).touch()
    collections.deque(itertools.repeat(0), maxlen=0)

if __name__ == "__main__":
    worker = WorkerProcess(be_stuck, {"stuck": "STUCK"})
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_stuck_worker_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    script, stuck = tmp_path / "parent.py", tmp_path / "stuck"
    script.write_text(PARENT.replace("STUCK", str(stuck)))
    parent = Program([sys.executable, str(script)], tmp_path / "log", {"PYTHONPATH": str(REPOSITORY)})
    workers: set[int] = set()
    try:
        wait_until(stuck.exists, "a worker that is stuck", 60)
        workers = descendants(parent.pid)
        parent.send(signal.SIGKILL)
        parent.wait()
        wait_until(lambda: not still_there(workers), "the worker's end", GRACE_SECONDS + 20)
    finally:
        for pid in still_there({parent.pid, *workers}):
            os.kill(pid, signal.SIGKILL)
    assert workers


def answer_at_length(connection: Connection, setup: dict[str, Any]) -> None:
    connection.send(b"more than a pipe holds" * (1 << 18))


def test_an_answer_that_a_kill_has_cut_off_is_a_death() -> None:
    worker = WorkerProcess(answer_at_length, {})

    def unread() -> int:
        (count,) = struct.unpack("i", fcntl.ioctl(worker.connection.fileno(), termios.FIONREAD, bytes(4)))
        return count

    wait_until(lambda: unread() > 1_000, "a part of the answer", 60)
    worker.process.kill()
    worker.process.join()
    with pytest.raises(EOFError):
        worker.receive()
    worker.close()
