"""Worker processes that serve requests, one at a time: evaluation, collecting, recordings."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from motif_jax.envs.spec import EngineError
from motif_jax.rl.actors.processes import (
    CLOSE_SECONDS,
    ChildProcess,
    Clock,
    Deaths,
    Failure,
    ParentGoneError,
    end_with_parent,
    failure_of,
    join_all,
    parent_reads,
)

_PART_SECONDS = 1.0  # a wait is divided into parts, so that `Clock` sees a pause
HANG_SECONDS = 300.0  # a process that is silent for so long is killed, and its job is done again
PROGRESS_SECONDS = 10.0  # between two signs of life of a process that works on a request
_END = object()  # stands for the end of the requests
_Job = TypeVar("_Job")


class ProcessWork(Protocol):
    """What a worker process does; the process makes it from its parent's setup."""

    def answer(self, request: Any) -> Any:
        """Serves one request. An EngineError ends the process like a crash of the engine; other
        errors reach the user.
        """

    def close(self) -> None: ...


@dataclass(frozen=True)
class WorkerProgress:
    """A sign of life of a worker that works on a request."""


class _Reporter:
    """Sends `WorkerProgress` through the pipe of this process, if it is a worker, now and then."""

    connection: Connection | None = None
    sent_at = 0.0


def note_progress() -> None:
    """Called at each step of a long request, such as an episode: its process is not taken for one
    that hangs.
    """
    now = time.monotonic()
    if _Reporter.connection is not None and now - _Reporter.sent_at > PROGRESS_SECONDS:
        _send(_Reporter.connection, WorkerProgress())
        _Reporter.sent_at = now


class WorkerProcess(ChildProcess):
    """One spawned worker, which answers requests as `make(setup)` does, and the pipe to it."""

    def __init__(self, make: Callable[[Any], ProcessWork], setup: Mapping[str, Any]) -> None:
        super().__init__(_serve, make, dict(setup))

    def send(self, request: Any) -> None:
        """Sends a request. That the process is dead shows when its answer is read."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(request)

    def receive(self) -> Any:
        """Waits for the next answer; raises as `receive_message`."""
        while isinstance(message := self.receive_message(), WorkerProgress):
            pass
        return message

    def receive_message(self) -> Any:
        """Waits for the next answer or `WorkerProgress`.

        Raises:
          EOFError: the process died, or hung and was killed.
          UserError: the process raised it.
          OSError: the disk was full.
          RuntimeError: the process raised another exception.
        """
        clock = Clock()
        while not self.connection.poll(min(HANG_SECONDS, _PART_SECONDS)):
            clock.advance()
            if clock.seconds >= HANG_SECONDS:
                # Its end of the pipe closes, so that the read below raises EOFError.
                self.kill()
                break
        try:
            answer = self.connection.recv()
        except OSError as error:  # a reset, or the end in the middle of an answer
            raise EOFError("the process died") from error
        if isinstance(answer, Failure):
            raise answer.error or RuntimeError(f"a worker process failed:\n{answer.trace}")
        return answer

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Closes the pipe, which ends the process, and kills it after `timeout` seconds."""
        self.connection.close()
        self.join(time.monotonic() + timeout)


def close_all(processes: Sequence[WorkerProcess]) -> None:
    """Ends processes together."""
    # All pipes first, so that the processes end side by side, within one deadline.
    for process in processes:
        process.connection.close()
    join_all(processes)


def _serve(
    connection: Connection, make: Callable[[Any], ProcessWork], setup: Mapping[str, Any]
) -> None:
    end_with_parent()
    _Reporter.connection = connection
    _Reporter.sent_at = time.monotonic()
    try:
        with contextlib.closing(make(setup)) as server:
            while (request := _receive(connection)) is not _END:
                _send(connection, server.answer(request))
    # The process ends as in a crash of the engine: its job goes to another one.
    except EngineError:
        raise
    except ParentGoneError:
        return
    except Exception as error:
        with contextlib.suppress(ParentGoneError):
            _send(connection, failure_of(error))


def _send(connection: Connection, message: Any) -> None:
    with parent_reads():
        connection.send(message)


def _receive(connection: Connection) -> Any:
    """The next request, `_END` where the parent has closed the pipe or died."""
    try:
        return connection.recv()
    except (EOFError, ConnectionResetError):
        return _END


class _Assignment(NamedTuple, Generic[_Job]):
    """A job that a process works on."""

    process: WorkerProcess
    number: int
    job: _Job
    alive_at: float  # by the clock, the last sign of life


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
    """Yields (job, answer) as worker processes finish jobs, in no particular order; they end with
    the generator.

    A process that dies is replaced, and its job is done again, up to `MAX_DEATHS` times.

    Args:
      jobs: read whenever a process is idle, so that it may end as soon as enough answers have come.
      workers: number of processes at most.
      stop: an object whose attribute `requested`, once true, ends the generator early; or None.
      lost: called for a job that killed `MAX_DEATHS` processes; if it does not raise, the job's
          answer is None.
      patient: whether a process may be silent for any time; else it counts as hung after
          `HANG_SECONDS` without `note_progress`.
      on_death: called at each death of a process with the number of deaths so far.
    """
    deaths = Deaths(on_death)
    clock = Clock()
    numbered_jobs = iter(enumerate(jobs))
    processes: list[WorkerProcess] = []
    busy: dict[Any, _Assignment[_Job]] = {}  # by the connection of the process

    def is_stopping() -> bool:
        return stop is not None and stop.requested

    def begin(number: int, job: _Job, process: WorkerProcess | None = None) -> None:
        """Gives a job to an idle process; None starts one."""
        if process is None:
            process = WorkerProcess(make, setup)
            processes.append(process)
        process.send(job)
        busy[process.connection] = _Assignment(process, number, job, clock.seconds)

    try:
        for number, job in itertools.islice(numbered_jobs, workers):
            if is_stopping():
                return
            begin(number, job)
        while busy and not is_stopping():
            for connection in wait(list(busy), timeout=_PART_SECONDS):
                assignment = busy.pop(connection)
                idle: WorkerProcess | None = assignment.process
                try:
                    answer = assignment.process.receive_message()
                except EOFError:
                    assignment.process.close(timeout=0)
                    processes.remove(assignment.process)
                    if not deaths.note(assignment.number):
                        begin(assignment.number, assignment.job)
                        continue
                    lost(assignment.job)
                    idle = None
                    answer = None
                if isinstance(answer, WorkerProgress):
                    busy[connection] = assignment._replace(alive_at=clock.seconds)
                    continue
                # Before the answer is yielded: the process works while the caller reads it.
                next_job = next(numbered_jobs, None)
                if next_job is not None:
                    begin(*next_job, idle)
                yield assignment.job, answer
            clock.advance()
            if patient:
                continue
            for assignment in busy.values():
                if clock.seconds - assignment.alive_at > HANG_SECONDS:
                    # Its connection reads as closed then: the job is done again.
                    assignment.process.kill()
    finally:
        close_all(processes)
