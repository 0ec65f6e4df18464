"""The pool's side of an actor process: start, death, replacement."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import deaf_processes
from motif_jax.rl.actors.actor import ActorOrders, Descriptor, serve

METHODS = ("auto", "fork", "exec")
_START_ATTEMPTS = 5
PAUSE_SECONDS = 0.2  # between two attempts to start a process
_SERVER_LOST = 255  # the exit code that multiprocessing reports for a process whose server died
# A worker's processes share a core, on which a library's threads would only disturb each other.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_ENVIRONMENT_LOCK = threading.Lock()


class ActorProcess:
    """The process that plays a group, and those that replace it.

    `method` is one of `METHODS`; the server that processes are forked from imports `modules`.

    Attributes:
      writes_to: takes the commands, the same for all processes of the group.
      pid, sentinel: of the current process, as multiprocessing has them; -1 before the first.
      is_up: whether it has reported that its environments are made.
      is_killed: whether `kill` was called for the current process.
      started_at: seconds by the pool's clock.
      failures: deaths since the group finished a slot.
      error: the process's last report of an error, or why it was killed.
    """

    def __init__(self, method: str, modules: Iterable[str]) -> None:
        self._method = method
        self._is_forked = method != "exec"
        self._modules = [serve.__module__, *modules]
        self.reads_from, self.writes_to = os.pipe()
        self.process: BaseProcess | None = None
        self.pid = -1
        self.sentinel = -1
        self.reports: Connection | None = None
        self.is_up = False
        self.is_killed = False
        self.started_at = 0.0
        self.failures = 0
        self.error = ""

    def start(self, clock: float, **orders: Any) -> None:
        """Starts a process.

        Args:
          clock: seconds by the pool's clock.
          orders: the fields of `ActorOrders` that the pool knows.

        Raises:
          UserError: no process could be started.
        """
        # The last words of the process before must not stand behind the death of this one.
        self._close_reports()
        self.started_at = clock
        self.is_up = False
        self.is_killed = False
        self.error = ""
        with deaf_processes(signal.SIGUSR1):
            resource_tracker.ensure_running()  # its start unblocks SIGINT and SIGTERM
        for attempts_left in reversed(range(_START_ATTEMPTS)):
            context: Any = multiprocessing.get_context("forkserver" if self._is_forked else "spawn")
            if self._is_forked:
                context.set_forkserver_preload(self._modules)  # of a server that starts from now on
            # Outside of the `try`: without descriptors another way to start a process does not
            # help.
            self.reports, their_reports = context.Pipe(duplex=False)
            try:
                self._start_once(context, their_reports, orders)
                return
            except (OSError, EOFError) as error:
                self._close_reports()
                if attempts_left == 0:
                    raise UserError(
                        f"no actor process can be started: {error!r}: where this user may start no more (ulimit -u), lower "
                        "config.actors.workers"
                    ) from error
                server_died = isinstance(error, EOFError | ConnectionError)
                if not self._is_forked or server_died:
                    # The next attempt starts another server.
                    time.sleep(PAUSE_SECONDS)
                elif self._method == "fork":
                    raise UserError(
                        f"config.actors.start_method=fork: no server of processes can be started: {error!r}: choose "
                        "auto, or a shorter TMPDIR"
                    ) from error
                else:
                    # No server can be started: the path of its socket may be too long.
                    self._is_forked = False

    def _start_once(self, context: Any, their_reports: Any, orders: Mapping[str, Any]) -> None:
        with their_reports, server_settings() as variables:
            all_orders = ActorOrders(
                **orders,
                variables=variables,
                temporary=tempfile.gettempdir(),
                commands=Descriptor(self.reads_from),
                reports=their_reports,
            )
            process = context.Process(target=serve, args=(all_orders,))
            process.start()
        # Once it runs: other threads read them, and see the process before until then.
        self.pid = process.pid
        self.sentinel = process.sentinel
        self.process = process

    def take_reports(self) -> Iterator[tuple[str, Any]]:
        """Yields (kind, content) of the reports that have not been read yet."""
        reports = self.reports
        if reports is None:
            return
        with contextlib.suppress(EOFError, OSError):  # the process has ended
            while reports.poll():
                yield reports.recv()

    def kill(self, reason: str) -> None:
        self.error = reason
        self.is_killed = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def cause_of_death(self) -> str:
        """Why the process has ended: one line, then its last report."""
        code = None if self.process is None else self.process.exitcode
        if code == _SERVER_LOST:
            with contextlib.suppress(ProcessLookupError):  # it still runs, unwatched
                os.kill(self.pid, signal.SIGKILL)
            reason = "the process that it was forked from died"
        elif code is not None and code < 0:
            reason = f"signal {-code}"
        else:
            reason = f"exit code {code}"
        return f"{reason}\n{self.error}" if self.error else reason

    def dismiss(self) -> None:
        """Closes the pipe of commands; the process ends when it notices."""
        os.close(self.writes_to)
        os.close(self.reads_from)

    def end(self, deadline: float) -> bool:
        """Joins a dismissed process, and kills it at the deadline; returns whether it ended in
        time.
        """
        in_time = True
        if self.process is not None:
            self.process.join(max(0.0, deadline - time.monotonic()))
            in_time = not self.process.is_alive()
            if not in_time:
                self.kill("")
                self.process.join()
        self._close_reports()
        return in_time

    def _close_reports(self) -> None:
        if self.reports is not None:
            self.reports.close()


@contextlib.contextmanager
def server_settings() -> Iterator[dict[str, str]]:
    """A server that starts inside, and its forks, run numeric libraries in one thread and block a
    process group's signals.

    Yields the environment variables without these settings. A lock keeps the pools of several
    devices, which replace their processes in threads, from changing the environment at once.
    """
    with _ENVIRONMENT_LOCK:
        variables = dict(os.environ)
        os.environ.update(_ONE_THREAD)
        try:
            with deaf_processes(signal.SIGTERM, signal.SIGUSR1):
                yield variables
        finally:
            # A server that has started keeps its copy; this process's own libraries use threads.
            for name in _ONE_THREAD:
                del os.environ[name]
            os.environ.update({name: variables[name] for name in _ONE_THREAD if name in variables})
