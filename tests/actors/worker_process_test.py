"""Worker processes of episodes and the process that has started them."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import termios
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from motif_jax.actors.worker_process import WorkerProcess
from motif_jax.envs.spec import EngineError
from motif_jax.support.errors import UserError
from tests.processes import wait_until


class Toy:
    """Answers at length, or fails as it is asked to."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self._errors = {
            "engine": EngineError("it hangs"),
            "user": UserError("no room"),
            "bug": KeyError("oh"),
        }

    def answer(self, request: Any) -> bytes:
        if request in self._errors:
            raise self._errors[request]
        return b"more than a pipe holds" * (1 << 18)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("request_", "error", "said"),
    [("engine", EOFError, None), ("user", UserError, "no room"), ("bug", RuntimeError, "KeyError: 'oh'")],
)
def test_a_broken_engine_is_a_death_and_another_error_is_told(
    request_: str, error: Any, said: str | None
) -> None:
    worker = WorkerProcess(Toy, {})
    worker.send(request_)
    with pytest.raises(error, match=said):
        worker.receive()
    worker.close()


def test_a_limit_on_processes_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(process: BaseProcess) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(BaseProcess, "start", refused)
    with pytest.raises(UserError, match="no further worker process can be started: Resource temporarily"):
        WorkerProcess(Toy, {})


def test_an_answer_that_a_kill_has_cut_off_is_a_death() -> None:
    worker = WorkerProcess(Toy, {})
    worker.send(None)

    def unread() -> int:
        (count,) = struct.unpack("i", fcntl.ioctl(worker.connection.fileno(), termios.FIONREAD, bytes(4)))
        return count

    wait_until(lambda: unread() > 1_000, "a part of the answer")
    worker.process.kill()
    worker.process.join()
    with pytest.raises(EOFError):
        worker.receive()
    worker.close()
