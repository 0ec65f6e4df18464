"""Starts, commands, watches, replaces and ends actor processes."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import resource
import select
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import util
from multiprocessing.connection import wait
from typing import Any

from motif_jax.core import tempdirs
from motif_jax.core.errors import UserError, first_line
from motif_jax.core.interruption import StoppedError, never
from motif_jax.envs import registry
from motif_jax.rl.actors.actor import COMMAND, RECORD, UP, ActorOrders, Descriptor, serve
from motif_jax.rl.actors.cores import ActorCores
from motif_jax.rl.actors.processes import ChildProcess, Clock, Deaths, Failure, join_all
from motif_jax.rl.actors.rollouts import HELLO_ROW, ActorsConfig, Ready, Rollouts, SlotSink

_WATCH_SECONDS = 0.1
_MAX_RECORDS = 2048  # that one `ready` reads
_WAKE = RECORD.pack(-1, -1, 0, 0)  # makes a `ready` that waits return
_FILES_OF_PROCESS = 6  # open files for each process
_OTHER_FILES = 256  # open files for everything else
# A worker's processes share a core, on which a library's threads would only disturb each other.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_ENVIRONMENT_LOCK = threading.Lock()


class ActorProcess(ChildProcess):
    """A process that plays a group.

    Attributes:
      started_at: seconds by the pool's clock.
      is_up: whether it has reported that its environments are made.
    """

    def __init__(
        self, orders: ActorOrders, forks: bool, modules: Sequence[str], now: float
    ) -> None:
        super().__init__(serve, orders, forks=forks, modules=modules)
        self.started_at = now
        self.is_up = False

    def take_reports(self) -> Iterator[Any]:
        """Yields the reports that have not been read yet."""
        with contextlib.suppress(EOFError, OSError):  # the process has ended
            while self.connection.poll():
                yield self.connection.recv()


class ActorPool(Rollouts):
    """Plays each group of `config` in a process; all share the slots. See the package's docstring
    for group, worker, slot and row.

    Life of a process: `_launch` starts it. It reports UP, and `_take_report` writes a record with
    `HELLO_ROW` to the pipe of records. `ready` reads that and lets the group start again. `act`
    sends commands (generation, slot, row): the process plays the actions of that row and answers
    with a record of the row that it has written, the next one; with the last the slot is full. When
    it dies, `_replace` raises the group's generation, so that records of the dead process are
    ignored. Messages call the process of group N "actor N".

    Each process has a pipe of its own for commands; all write records to a shared one. A process
    that dies is replaced: its group drops its unfinished slot and starts again, while the other
    groups continue. The groups of a worker share a core: one plays while the others wait for their
    actions.

    A process counts as hanging if the pipe of records is empty and its answer is missing for
    `timeout_seconds`, by a clock that stops while this process is paused (`Clock`).

    Attributes:
      processes: by group, once they are started.
      all_read_at: when the pipe of records was last empty, by the clock.
      commanded_at: of each group, when the command was sent that has no answer yet, by the clock;
          None: there is none.
      records: the descriptor from which the actors' records are read.
    """

    def __init__(
        self,
        config: ActorsConfig,
        next_episode: Sequence[int] = (),
        on_finished: SlotSink = lambda _: None,
    ) -> None:
        super().__init__(config, next_episode, on_finished)
        allow_open_files(config.groups * _FILES_OF_PROCESS)
        # One for all games of a group: rings of processes with 4 games each played 21,100 to 23,900
        # steps/s in place of 26,400 to 26,900 (Zen 4).
        self.processes: list[ActorProcess] = []
        self._modules = [serve.__module__, *registry.shared_modules(config.env, **config.options)]
        # The pipe of each group's commands, for all processes of the group.
        pipes = [os.pipe() for _ in range(config.groups)]
        self._reads_from = [read_end for read_end, _ in pipes]
        self._writes_to = [write_end for _, write_end in pipes]
        self.records, self._records_in = os.pipe()
        self._records_poll = select.poll()
        self._records_poll.register(self.records, select.POLLIN)
        self._cores: ActorCores | None = None
        # How often the process of each group has died: now, and when the process that is up was
        # started. Commands and records carry the number, so that a process ignores commands to its
        # predecessor, and `ready` ignores records of a dead process.
        self._generation = [0] * config.groups
        self._started_generation = [0] * config.groups
        self._deaths = Deaths(limit=config.max_failures)
        self._clock = Clock()
        self.all_read_at = 0.0
        self.commanded_at: list[float | None] = [None] * config.groups
        self._slots_finished = [0] * config.groups
        self._episodes: list[dict[str, Any]] = []
        self._failure: tuple[str, Exception | None] | None = None  # the message, and its cause
        self._closing = threading.Event()
        self._closed = False
        self._lock = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name="actor-watch", daemon=True)
        # Registered after multiprocessing's function, so it runs before that, which would wait for
        # the processes.
        atexit.register(self.close)

    def start(self, stopped: Callable[[], bool] = never) -> None:
        # Makes the folder for the socket of the processes' server where it is removed after a kill,
        # too.
        with tempdirs.own_folders():
            util.get_temp_dir()
        if self.config.cores is None:
            self._cores = ActorCores(self.config.workers)
            self.config = dataclasses.replace(self.config, cores=self._cores.ids)
        for group in range(self.config.groups):
            # A thousand processes take minutes to start.
            if group % self.config.groups_per_worker == 0 and stopped():
                raise StoppedError
            self.processes.append(self._launch(group))
        self._watcher.start()

    @property
    def clock(self) -> float:
        """Seconds since the start by the watching thread's clock."""
        return self._clock.seconds

    def pids(self) -> list[int]:
        """Process ids of the actors, by group."""
        return [process.pid for process in self.processes]

    def ready(self, timeout: float) -> list[Ready]:
        self.restarted_groups.clear()
        ready = self._assign_slots()
        # Taken before the read: a record that is written after this moment may not be among the
        # records.
        read_at = self.clock
        records = self._read_records(0.0 if ready else timeout)
        for generation, group, slot, row in records:
            is_wake = group < 0
            # Of another generation: the process that wrote it has died since.
            if is_wake or generation != self._generation[group]:
                continue

            self.commanded_at[group] = None
            if row == HELLO_ROW:
                self._started_generation[group] = generation
                self._restart(group)
                # Its predecessor may have been ready before it died.
                ready = [entry for entry in ready if entry.group != group]
                continue

            entry = self._note_written(group, slot, row)
            if entry is None:
                self._slots_finished[group] += 1
            else:
                ready.append(entry)

        # Only now, when no command that these records answered is left in `commanded_at`.
        if len(records) < _MAX_RECORDS:
            self.all_read_at = read_at
        ready += self._assign_slots()
        if self._failure is not None:
            reason, cause = self._failure
            if isinstance(cause, UserError):
                raise cause
            raise RuntimeError(reason) from cause
        return ready

    def _read_records(self, timeout: float) -> list[tuple[int, ...]]:
        """The actors' records (generation, group, slot, row), at most `_MAX_RECORDS`; waits
        `timeout` seconds for the first.
        """
        milliseconds = 1000 * timeout
        if not self._records_poll.poll(milliseconds):
            return []
        return list(RECORD.iter_unpack(os.read(self.records, _MAX_RECORDS * RECORD.size)))

    def act(self, ready: Sequence[Ready]) -> None:
        clock = self.clock
        for group, slot, row in ready:
            # Before the command, whose answer may come at once.
            self.commanded_at[group] = clock
            command = COMMAND.pack(self._started_generation[group], slot, row)
            os.write(self._writes_to[group], command)

    def release(self, slot: int) -> None:
        super().release(slot)
        self._write_record(_WAKE)

    def episodes(self) -> list[dict[str, Any]]:
        with self._lock:
            finished = self._episodes
            self._episodes = []
        return finished

    def close(self) -> None:
        """Ends the processes; those that have not ended in five seconds are killed."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._closing.set()
        if self._watcher.is_alive():
            self._watcher.join()
        with self._lock:
            # The processes end when they notice that the pipes of commands do.
            for descriptor in (*self._writes_to, *self._reads_from):
                os.close(descriptor)
            join_all(self.processes)
            os.close(self.records)
            os.close(self._records_in)
            self._records_in = -1
        if self._cores is not None:
            self._cores.close()
        self.slots.close()

    def _launch(self, group: int) -> ActorProcess:
        with one_thread() as variables:
            orders = ActorOrders(
                config=self.config,
                layout=self.slots.layout,
                group=group,
                generation=self._generation[group],
                variables=variables,
                temporary=tempfile.gettempdir(),
                memory=Descriptor(self.slots.descriptor),
                commands=Descriptor(self._reads_from[group]),
                records=Descriptor(self._records_in),
            )
            forks = self.config.start_method != "exec"
            return ActorProcess(orders, forks, self._modules, self.clock)

    def _command(self, group: int, slot: int, row: int) -> None:
        self.act([Ready(group, slot, row)])

    def _watch(self) -> None:
        """The watching thread: reads reports, replaces dead processes, kills those that hang."""
        try:
            while not self._closing.wait(_WATCH_SECONDS):
                self._clock.advance()
                # First see who is dead, then read reports: so all that a dead process had reported
                # is read before it is replaced.
                dead = wait([process.sentinel for process in self.processes], 0)
                for group, process in enumerate(self.processes):
                    for report in process.take_reports():
                        self._take_report(group, report)
                    if process.sentinel in dead:
                        self._replace(group)
                self._kill_hanging_processes()
        except Exception as error:
            self._fail(f"the actors cannot continue: {first_line(error)}", error)

    def _take_report(self, group: int, report: Any) -> None:
        if report == UP:
            self.processes[group].is_up = True
            self._write_record(RECORD.pack(self._generation[group], group, -1, HELLO_ROW))
        elif not isinstance(report, Failure):
            with self._lock:
                self._episodes.append(report)
        elif report.error is not None:  # another process would meet the same
            raise report.error
        else:
            self.processes[group].error = report.trace

    def _kill_hanging_processes(self) -> None:
        # `ready` clears commands that are answered, then advances `all_read_at`. This thread reads
        # in the opposite order, so a command that it still finds, and that is older, had no answer
        # in the pipe at that moment.
        all_read_at = self.all_read_at
        start_timeout = self.config.start_timeout_seconds
        timeout = self.config.timeout_seconds
        for group, process in enumerate(self.processes):
            # Read before `commanded_at`, which `ready` clears first: a command that the group's
            # last process was sent is none of the new one's.
            has_started = self._started_generation[group] == self._generation[group]
            commanded_at = self.commanded_at[group]
            if process.is_killed:
                continue
            if not process.is_up:
                # The first process of a group sleeps up to `warmup_seconds` before it is up.
                limit = start_timeout + self.config.warmup_seconds
                if self.clock - process.started_at > limit:
                    process.kill(f"it was not up after {limit:g} seconds")
            elif has_started and commanded_at is not None and all_read_at - commanded_at > timeout:
                self.commanded_at[group] = None
                process.kill(f"it did not answer for {timeout:g} seconds")

    def _replace(self, group: int) -> None:
        """Starts another process for one that died; the group starts again when the new one is
        up.
        """
        process = self.processes[group]
        process.join(0.0)
        reason = process.cause_of_death()
        if self._slots_finished[group]:
            self._deaths.forget(group)
        elif self._deaths.note(group):
            self._closing.set()
            self._fail(
                f"actor {group} died {self.config.max_failures} times in a row before it finished a rollout: {reason}"
            )
            return
        print(f"actor {group} died ({reason}); it is replaced", file=sys.stderr, flush=True)
        self._generation[group] += 1
        self._slots_finished[group] = 0
        self.commanded_at[group] = None
        self.processes[group] = self._launch(group)
        self.restarts += 1

    def _write_record(self, record: bytes) -> None:
        with self._lock:
            if self._records_in >= 0:
                os.write(self._records_in, record)

    def _fail(self, reason: str, cause: Exception | None = None) -> None:
        self._failure = reason, cause
        self._write_record(_WAKE)


@contextlib.contextmanager
def one_thread() -> Iterator[dict[str, str]]:
    """A server of processes that starts inside, and its forks, run numeric libraries in one thread.

    Yields the environment variables without these settings. A lock keeps the pools of several
    devices, which replace their processes in threads, from changing the environment at once.
    """
    with _ENVIRONMENT_LOCK:
        variables = dict(os.environ)
        os.environ.update(_ONE_THREAD)
        try:
            yield variables
        finally:
            # A server that has started keeps its copy; this process's own libraries use threads.
            for name in _ONE_THREAD:
                del os.environ[name]
            os.environ.update({name: variables[name] for name in _ONE_THREAD if name in variables})


def allow_open_files(count: int) -> None:
    """Lets this process open `count` more files, or as many as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + count + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
