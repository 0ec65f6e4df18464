"""Runs worker processes that serve requests: watches and replaces them, and counts their deaths."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeVar

from motif_jax.core import tempdirs
from motif_jax.core.errors import UserError
from motif_jax.core.files import NO_ROOM
from motif_jax.core.interruption import deaf_processes
from motif_jax.core.parent_death import end_with_parent
from motif_jax.envs.spec import EngineError

HANG_SECONDS = 300.0  # after so long without an answer a process is killed, and its episodes are replayed
MAX_DEATHS = 3  # an episode that kills so many processes counts as unplayable
_CLOSE_SECONDS = 5.0
_END = object()  # no more requests
_Job = TypeVar("_Job")


class ProcessWork(Protocol):
    """The work of a process, which makes it from its parent's setup."""

    def answer(self, request: Any) -> Any:
        """Serves one request. An EngineError ends the process like a crash of the engine; other errors reach the user."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class WorkerFailure:
    """An exception in a worker that is no crash of the engine: `user` is the text of a UserError, `trace` of any other."""

    trace: str
    user: str = ""


class WorkerProcess:
    """One spawned worker, which answers requests as `make(setup)` does, and the pipe to it."""

    def __init__(self, make: Callable[[Any], ProcessWork], setup: Mapping[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, child = context.Pipe()
        self.process = context.Process(target=_serve, args=(make, child, dict(setup)), daemon=True)
        resource_tracker.ensure_running()  # a start inside the block would unblock SIGINT
        try:
            with deaf_processes():
                self.process.start()
        except BlockingIOError as error:
            raise UserError(
                f"no further worker process can be started: {error.strerror}: choose fewer workers (ulimit -u)"
            ) from error
        child.close()  # so that a dead worker's pipe reads as closed

    def send(self, request: Any) -> None:
        """Sends a request; a dead process is noticed when its answer is read."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(request)

    def receive(self) -> Any:
        """Waits for the next answer.

        Raises:
          EOFError: the process died, or hung and was killed.
          UserError: the process raised it.
          OSError: the disk was full.
          RuntimeError: the process raised another exception.
        """
        if not self.connection.poll(HANG_SECONDS):
            self.process.kill()
        try:
            answer = self.connection.recv()
        except OSError as error:  # a reset, or the end in the middle of an answer
            raise EOFError("the process died") from error
        if isinstance(answer, OSError):
            raise answer
        if isinstance(answer, WorkerFailure):
            if answer.user:
                raise UserError(answer.user)
            raise RuntimeError(f"a worker process failed:\n{answer.trace}")
        return answer

    def close(self, timeout: float = _CLOSE_SECONDS) -> bool:
        """Closes the pipe, which ends the process. Kills it after `timeout` seconds; returns whether it had to."""
        self.connection.close()
        self.process.join(timeout)
        late = self.process.is_alive()
        if late:
            self.process.kill()
            self.process.join()
        return late


def close_all(processes: Sequence[WorkerProcess]) -> None:
    """Ends processes together, and removes the temporary folders of those that had to be killed."""
    for process in processes:
        process.connection.close()
    deadline = time.monotonic() + _CLOSE_SECONDS
    killed = [process for process in processes if process.close(max(0.0, deadline - time.monotonic()))]
    if killed:
        tempdirs.remove_abandoned()


def _serve(make: Callable[[Any], ProcessWork], connection: Connection, setup: Mapping[str, Any]) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    end_with_parent(parent.sentinel)  # a pipe that the parent holds open and never writes to
    # These errors mean that the parent has closed the pipe or died.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        try:
            with contextlib.closing(make(setup)) as server:
                while (request := _received(connection)) is not _END:
                    connection.send(server.answer(request))
        except (EngineError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                connection.send(error)
                return
            user = str(error) if isinstance(error, UserError) else ""
            connection.send(WorkerFailure(traceback.format_exc(), user))


def _received(connection: Connection) -> Any:
    try:
        return connection.recv()
    except (EOFError, ConnectionResetError):
        return _END


class Deaths:
    """Counts the deaths of workers by job; calls `report` with the number of all deaths after each."""

    def __init__(self, report: Callable[[int], None] | None = None) -> None:
        self._counts: Counter[int] = Counter()
        self._report = report

    def note(self, key: int) -> bool:
        """Counts a death; returns whether `key` has reached `MAX_DEATHS`."""
        self._counts[key] += 1
        if self._report is not None:
            self._report(self._counts.total())
        return self._counts[key] >= MAX_DEATHS


def run_jobs(
    make: Callable[[Any], ProcessWork],
    setup: Mapping[str, Any],
    jobs: Iterable[_Job],
    workers: int,
    stop: Any,
    lost: Callable[[_Job], None],
    patient: bool = False,
    on_death: Callable[[int], None] | None = None,
) -> Generator[tuple[_Job, Any], None, None]:
    """Yields (job, answer) as worker processes finish jobs, in no particular order; they end with the generator.

    A process that dies is replaced, and its job is done again, up to `MAX_DEATHS` times.

    Args:
      jobs: read whenever a process is idle, so that it may end as soon as enough answers have come.
      workers: most processes.
      stop: an object whose attribute `requested`, once true, ends the generator early; or None.
      lost: called for a job that killed `MAX_DEATHS` processes; if it does not raise, the answer is None.
      patient: a job may take any time; else its process counts as hung after `HANG_SECONDS`.
      on_death: called with the number of deaths so far at each of them.
    """
    waiting = iter(enumerate(jobs))
    processes: list[WorkerProcess] = []
    busy: dict[Any, tuple[WorkerProcess, tuple[int, _Job], float]] = {}
    deaths = Deaths(on_death)

    def stopping() -> bool:
        return stop is not None and stop.requested

    def give(numbered: tuple[int, _Job], process: WorkerProcess | None = None) -> None:
        if process is None:
            process = WorkerProcess(make, setup)
            processes.append(process)
        process.send(numbered[1])
        busy[process.connection] = (process, numbered, time.monotonic())

    try:
        for numbered in itertools.islice(waiting, workers):
            if stopping():
                return
            give(numbered)
        while busy and not stopping():
            for connection in wait(list(busy), timeout=1.0):
                process: WorkerProcess | None
                process, (number, job), _ = busy.pop(connection)
                try:
                    answer = process.receive()
                except EOFError:
                    process.close(timeout=0)
                    processes.remove(process)
                    process, answer = None, None
                    if not deaths.note(number):
                        give((number, job))
                        continue
                    lost(job)
                if (following := next(waiting, None)) is not None:
                    give(following, process)
                yield job, answer
            for process, _, since in busy.values():
                if not patient and time.monotonic() - since > HANG_SECONDS:
                    process.process.kill()
    finally:
        close_all(processes)
