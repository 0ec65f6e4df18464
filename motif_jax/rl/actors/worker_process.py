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
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from motif_jax.core import tempdirs
from motif_jax.core.errors import UserError
from motif_jax.core.files import NO_ROOM
from motif_jax.core.interruption import deaf_processes
from motif_jax.core.parent_death import ParentGoneError, end_with_parent, lifeline_of_parent
from motif_jax.envs.spec import EngineError

# A wait is divided into parts of so many seconds. In a longer part this process was paused (Ctrl-Z,
# a suspended job), as the workers were.
_PART_SECONDS = 1.0
HANG_SECONDS = 300.0  # a process that is silent for so long is killed, and its job is done again
PROGRESS_SECONDS = 10.0  # between two signs of life of a process that works on a request
MAX_DEATHS = 3  # a job that kills so many processes is given up
_CLOSE_SECONDS = 5.0
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
class WorkerFailure:
    """An exception in a worker that is not a crash of the engine: its traceback, and the text of a
    UserError ('' for others).
    """

    trace: str
    user: str = ""


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
        # Else this process would hold the worker's end open, and a dead worker's pipe would not
        # read as closed.
        child.close()

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
        if self._is_silent():
            # Its end of the pipe closes, so that the read below raises EOFError.
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

    def _is_silent(self) -> bool:
        """Whether nothing comes for `HANG_SECONDS`, without the time of a pause."""
        left = HANG_SECONDS
        while left > 0:
            if self.connection.poll(min(left, _PART_SECONDS)):
                return False
            left -= _PART_SECONDS
        return True

    def close(self, timeout: float = _CLOSE_SECONDS) -> bool:
        """Closes the pipe, which ends the process. Kills it after `timeout` seconds; returns
        whether that was necessary.
        """
        self.connection.close()
        self.process.join(timeout)
        is_late = self.process.is_alive()
        if is_late:
            self.process.kill()
            self.process.join()
        return is_late


def close_all(processes: Sequence[WorkerProcess]) -> None:
    """Ends processes together, and removes the temporary folders of those that had to be killed."""
    # All pipes first, so that the processes end side by side, within one deadline.
    for process in processes:
        process.connection.close()
    deadline = time.monotonic() + _CLOSE_SECONDS
    killed = [
        process for process in processes if process.close(max(0.0, deadline - time.monotonic()))
    ]
    if killed:
        tempdirs.remove_abandoned()


def _serve(
    make: Callable[[Any], ProcessWork], connection: Connection, setup: Mapping[str, Any]
) -> None:
    end_with_parent(lifeline_of_parent())
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
            _send(connection, _failure_of(error))


def _failure_of(error: Exception) -> WorkerFailure | OSError:
    """What the parent is sent of an error: itself, where the disk is full, else its texts."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return error
    user = str(error) if isinstance(error, UserError) else ""
    return WorkerFailure("".join(traceback.format_exception(error)), user)


def _send(connection: Connection, message: Any) -> None:
    """Raises ParentGoneError where nobody reads the pipe: a ConnectionError may also come from what
    the process works with.
    """
    try:
        connection.send(message)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ParentGoneError from error


def _receive(connection: Connection) -> Any:
    """The next request, `_END` where the parent has closed the pipe or died."""
    try:
        return connection.recv()
    except (EOFError, ConnectionResetError):
        return _END


class _Clock:
    """Seconds of this process, without the time of a pause."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._read_at = time.monotonic()

    def advance(self) -> None:
        """To be called in every part of a wait."""
        now = time.monotonic()
        self.seconds += min(now - self._read_at, 2 * _PART_SECONDS)
        self._read_at = now


class Deaths:
    """Counts the deaths of workers by job; after each death calls `report` with the number of all
    deaths so far.
    """

    def __init__(self, report: Callable[[int], None] | None = None) -> None:
        self._counts: Counter[int] = Counter()
        self._report = report

    def note(self, key: int) -> bool:
        """Counts a death; returns whether `key` has reached `MAX_DEATHS`."""
        self._counts[key] += 1
        if self._report is not None:
            self._report(self._counts.total())
        return self._counts[key] >= MAX_DEATHS


class _Assignment(NamedTuple, Generic[_Job]):
    """A job that a process works on."""

    process: WorkerProcess
    number: int
    job: _Job
    alive_at: float  # the pool's seconds at the last sign of life


class _FinishedJob(NamedTuple, Generic[_Job]):
    """A job that needs no further work, and its answer.

    Attributes:
      process: the process that has become idle; None where the job has killed `MAX_DEATHS`
          processes and has no answer.
    """

    job: _Job
    answer: Any
    process: WorkerProcess | None


class _JobPool(Generic[_Job]):
    """The processes of `run_jobs`, and the jobs that they work on.

    Attributes:
      processes: those that live.
      busy: connection -> the job of its process.
    """

    def __init__(
        self,
        make: Callable[[Any], ProcessWork],
        setup: Mapping[str, Any],
        on_death: Callable[[int], None] | None,
    ) -> None:
        self._make = make
        self._setup = setup
        self._deaths = Deaths(on_death)
        self.clock = _Clock()
        self.processes: list[WorkerProcess] = []
        self.busy: dict[Any, _Assignment[_Job]] = {}

    def begin(self, number: int, job: _Job, process: WorkerProcess | None = None) -> None:
        """Gives a job to an idle process; None starts one."""
        if process is None:
            process = WorkerProcess(self._make, self._setup)
            self.processes.append(process)
        process.send(job)
        self.busy[process.connection] = _Assignment(process, number, job, self.clock.seconds)

    def read(self, connection: Any) -> _FinishedJob[_Job] | None:
        """Reads a message of a busy process; None where its job goes on, in this process or, if it
        died, in a new one.

        Raises as `WorkerProcess.receive_message`, but for EOFError.
        """
        assignment = self.busy.pop(connection)
        process = assignment.process
        try:
            answer = process.receive_message()
        except EOFError:
            process.close(timeout=0)
            self.processes.remove(process)
            if self._deaths.note(assignment.number):
                return _FinishedJob(assignment.job, None, None)
            self.begin(assignment.number, assignment.job)
            return None
        if isinstance(answer, WorkerProgress):
            self.busy[connection] = assignment._replace(alive_at=self.clock.seconds)
            return None
        return _FinishedJob(assignment.job, answer, process)

    def kill_silent(self) -> None:
        """Kills the processes that are silent for `HANG_SECONDS`; `read` replaces them."""
        for assignment in self.busy.values():
            if self.clock.seconds - assignment.alive_at > HANG_SECONDS:
                assignment.process.process.kill()


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
    pool = _JobPool[_Job](make, setup, on_death)
    waiting_jobs = iter(enumerate(jobs))

    def is_stopping() -> bool:
        return stop is not None and stop.requested

    try:
        for number, job in itertools.islice(waiting_jobs, workers):
            if is_stopping():
                return
            pool.begin(number, job)
        while pool.busy and not is_stopping():
            for connection in wait(list(pool.busy), timeout=_PART_SECONDS):
                finished = pool.read(connection)
                if finished is None:
                    continue
                if finished.process is None:
                    lost(finished.job)
                # Before the answer is yielded: the process works while the caller reads it.
                next_job = next(waiting_jobs, None)
                if next_job is not None:
                    pool.begin(*next_job, finished.process)
                yield finished.job, finished.answer
            pool.clock.advance()
            if not patient:
                pool.kill_silent()
    finally:
        close_all(pool.processes)
