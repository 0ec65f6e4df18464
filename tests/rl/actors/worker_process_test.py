"""Worker processes that raise, die or cannot be started."""

from __future__ import annotations

import subprocess
import threading
import time
from typing import Any

import psutil
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs.spec import EngineError
from motif_jax.rl.actors import worker_process
from motif_jax.rl.actors.worker_process import WorkerProcess, note_progress, run_jobs
from tests.processes import unread, wait_until
from tests.sets import extra


class Toy:
    """Raises the error that it is sent, else answers at length."""

    def __init__(self, setup: dict[str, Any]) -> None: ...

    def answer(self, request: Exception | None) -> bytes:
        if request is not None:
            raise request
        return b"more than a pipe holds" * (1 << 18)

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("failure", "raised", "message"),
    [
        (EngineError("it hangs"), EOFError, None),
        (UserError("no room"), UserError, "no room"),
        (KeyError("oh"), RuntimeError, "KeyError: 'oh'"),
        # Of a server that an environment or a policy talks to, not of the pipe.
        (
            ConnectionResetError("the game's server is gone"),
            RuntimeError,
            "the game's server is gone",
        ),
    ],
)
def test_a_broken_engine_is_a_death_and_others_are_errors(
    failure: Any, raised: Any, message: Any
) -> None:
    worker = WorkerProcess(Toy, {})
    worker.send(failure)
    with pytest.raises(raised, match=message):
        worker.receive()
    worker.close()


def test_an_answer_that_a_kill_cuts_off_is_a_death() -> None:
    worker = WorkerProcess(Toy, {})
    worker.send(None)
    wait_until(lambda: unread(worker.connection.fileno()) > 1_000, "a part of the answer")
    worker.process.kill()
    worker.process.join()
    with pytest.raises(EOFError):
        worker.receive()
    worker.close()


class Slow:
    """Works for 6 seconds in small steps, which it reports where it is asked to."""

    def __init__(self, setup: dict[str, Any]) -> None:
        worker_process.PROGRESS_SECONDS = 0.1  # of this process

    def answer(self, request: bool) -> str:
        end = time.monotonic() + 6.0
        while time.monotonic() < end:
            time.sleep(0.05)
            if request:
                note_progress()
        return "done"

    def close(self) -> None: ...


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reports", "answer", "num_deaths"), [(True, "done", 0), extra(False, None, 3)]
)
def test_a_long_job_that_reports_steps_is_no_hang(
    monkeypatch: pytest.MonkeyPatch, reports: bool, answer: str | None, num_deaths: int
) -> None:
    # On a busy machine a process may wait for seconds.
    monkeypatch.setattr(worker_process, "HANG_SECONDS", 3.5)
    deaths: list[int] = []

    answers = list(run_jobs(Slow, {}, [reports], 1, None, lambda job: None, on_death=deaths.append))

    assert answers == [(reports, answer)]
    assert len(deaths) == num_deaths


class Steady:
    """Works for four seconds of its own, however long it is stopped."""

    def __init__(self, setup: dict[str, Any]) -> None: ...

    def answer(self, request: int) -> str:
        for _ in range(40):
            time.sleep(0.1)
        return "done"

    def close(self) -> None: ...


@pytest.mark.extra
def test_a_pause_of_all_processes_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "HANG_SECONDS", 12.0)
    deaths: list[int] = []

    def pause() -> None:
        """Stops this process and its workers for fifteen seconds, as a batch system's suspension
        does.
        """
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        numbers = " ".join(str(process.pid) for process in processes)
        command = f"kill -STOP {numbers}; sleep 15; kill -CONT {numbers}"
        subprocess.Popen(["sh", "-c", command], start_new_session=True)

    timer = threading.Timer(1.5, pause)
    timer.start()
    answers = list(run_jobs(Steady, {}, [0], 1, None, lambda job: None, on_death=deaths.append))
    assert answers == [(0, "done")]
    assert deaths == []


def test_an_answer_comes_after_signs_of_life() -> None:
    worker = WorkerProcess(Slow, {})
    worker.send(True)
    assert worker.receive() == "done"
    worker.close()
