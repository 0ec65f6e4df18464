"""Actor processes: started, told what to do, watched, replaced when they die, and ended."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from motif_jax.actors import folders
from motif_jax.actors.rollouts import END_ROW, HELLO_ROW, ActorsConfig, Ready, Rollouts, SlotListener
from motif_jax.actors.worker import COMMAND, RECORD
from motif_jax.support import resources
from motif_jax.support.interruption import StoppedError, deaf_processes, never

_WATCH_SECONDS = 0.1
_CLOSE_SECONDS = 5.0
# What counts at most of the time between two looks of the thread that watches: what is longer is a pause of this process.
_LONGEST_LOOK_SECONDS = 1.0
_MOST_RECORDS = 2048
_WAKE = RECORD.pack(-1, 0, 0, 0, 0)


class ActorPool(Rollouts):
    """The groups of `config` in spawned processes that share the slots.

    Workers write records to one pipe that this process reads, and each reads its commands from a pipe of its own;
    a worker whose commands end (its parent closed them, or died) ends. A worker that dies is replaced: its
    unfinished slots are dropped and its environments start new episodes. Engines keep their files in a temporary
    folder of each process, which goes with the process, or with its successor's start when it was killed.

    A worker is taken for dead when all that was in the pipe of records has been read and an answer has still been missing
    for too long, by a clock that stands still while this process does (Ctrl-Z, a debugger, a frozen container).
    """

    def __init__(
        self,
        config: ActorsConfig,
        next_episode: Sequence[int] | None = None,
        listeners: Sequence[SlotListener] = (),
    ) -> None:
        super().__init__(config, next_episode, listeners)
        self._records, self._records_in = os.pipe()
        self._reports, self._reports_in = os.pipe()
        self._folder: Path | None = None
        self._folder_lock = -1
        self._processes: list[subprocess.Popen[bytes]] = []
        self._commands = [-1] * config.workers
        self._generation = [0] * config.workers
        # The generation that a group was started in. Commands carry it: one that was decided on before a worker
        # died must not reach its successor.
        self._group_generation = [0] * config.groups
        # Seconds that this process has been seen to run; only the thread that watches moves it on.
        self._clock = 0.0
        # By that clock: the commands that have no answer yet, and the last time that no record was left unread.
        self._commanded_at: list[float | None] = [None] * config.groups
        self._all_read_at = 0.0
        # Of workers that are not up yet.
        self._spawned_at: list[float | None] = [None] * config.workers
        self._slots_finished = [0] * config.workers
        self._failures = [0] * config.workers
        self._episodes: list[dict[str, Any]] = []
        self._errors: dict[int, str] = {}
        self._failure: str | None = None
        self._closing = threading.Event()
        self._closed = False
        self._lock = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name="actor-watch", daemon=True)

    def start(self, stopped: Callable[[], bool] = never) -> None:
        """Starts the processes and the thread that watches them; see `Rollouts.start`."""
        self._folder, self._folder_lock = folders.create()
        for worker in range(self.config.workers):
            if stopped():
                raise StoppedError
            self._processes.append(self._spawn(worker))
        self._watcher.start()

    def pids(self) -> list[int]:
        """Process ids of the workers."""
        with self._lock:
            return [process.pid for process in self._processes]

    def ready(self, timeout: float) -> list[Ready]:
        """See `Rollouts.ready`."""
        ready = self._go_on()
        read_at = self._clock
        records = self._read(0.0 if ready else timeout)
        for worker, generation, group, slot, row in records:
            if worker < 0 or generation != self._generation[worker]:
                continue  # a slot was released, or the record's process is dead
            if row == HELLO_ROW:
                groups = self._welcome(worker, generation)
                ready = [entry for entry in ready if entry.group not in groups]  # read before its worker died
                continue
            self._commanded_at[group] = None
            waiting = self._written(group, slot, row)
            if waiting is None:
                self._slots_finished[worker] += 1
            else:
                ready.append(waiting)
        if len(records) < _MOST_RECORDS:
            self._all_read_at = read_at
        ready += self._go_on()
        if self._failure is not None:
            raise RuntimeError(self._failure)
        return ready

    def act(self, ready: Sequence[Ready]) -> None:
        """See `Rollouts.act`; one write for all groups of a worker."""
        commands: dict[int, bytes] = {}
        for group, slot, row in ready:
            worker = group // self.config.groups_per_worker
            command = COMMAND.pack(self._group_generation[group], group, slot, row)
            commands[worker] = commands.get(worker, b"") + command
            self._commanded_at[group] = self._clock
        with self._lock:
            for worker, data in commands.items():
                with contextlib.suppress(BrokenPipeError):  # a dead worker: the watcher sees to it
                    os.write(self._commands[worker], data)

    def release(self, slot: int) -> None:
        """See `Rollouts.release`; wakes the thread in `ready`."""
        super().release(slot)
        self.wake()

    def wake(self) -> None:
        """Makes a `ready` that waits return."""
        with self._lock:
            if self._records_in >= 0:
                os.write(self._records_in, _WAKE)

    def episodes(self) -> list[dict[str, Any]]:
        """See `Rollouts.episodes`."""
        with self._lock:
            finished, self._episodes = self._episodes, []
        return finished

    def close(self) -> None:
        """Ends the processes by closing their pipes; one that does not end in five seconds is killed."""
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        if self._watcher.is_alive():
            self._watcher.join()
        with self._lock:
            for worker, generation in enumerate(self._generation):
                if self._commands[worker] >= 0:
                    with contextlib.suppress(BrokenPipeError):
                        os.write(self._commands[worker], COMMAND.pack(generation, -1, -1, END_ROW))
                self._close_commands(worker)
            deadline = time.monotonic() + _CLOSE_SECONDS
            for process in self._processes:
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                _close_input(process)
            for descriptor in (self._records, self._records_in, self._reports, self._reports_in):
                os.close(descriptor)
            self._records_in = -1
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._folder_lock)
        self.slots.close()

    def _spawn(self, worker: int) -> subprocess.Popen[bytes]:
        assert self._folder is not None
        folder = folders.renew(self._folder, worker)
        commands, self._commands[worker] = os.pipe()
        orders = {
            "config": dataclasses.asdict(self.config),
            "layout": str(self.slots.layout),
            "worker": worker,
            "generation": self._generation[worker],
            "parent": os.getpid(),
            "memory": self.slots.descriptor,
            "commands": commands,
            "records": self._records_in,
            "reports": self._reports_in,
        }
        self._spawned_at[worker] = self._clock
        try:
            with deaf_processes():
                process = subprocess.Popen(
                    [sys.executable, "-m", "motif_jax.actors.worker"],
                    stdin=subprocess.PIPE,
                    stdout=2,  # standard output is the parent's own: whatever an engine prints goes to the log
                    pass_fds=[
                        self.slots.descriptor,
                        self._folder_lock,
                        commands,
                        self._records_in,
                        self._reports_in,
                    ],
                    env=_worker_environment(folder),
                )
        finally:
            os.close(commands)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            # It stays open: a worker sees by it whether its parent is there.
            process.stdin.write(json.dumps(orders).encode() + b"\n")
            process.stdin.flush()
        return process

    def _welcome(self, worker: int, generation: int) -> range:
        """A worker is up: its groups, which are returned, get slots and start."""
        per_worker = self.config.groups_per_worker
        groups = range(worker * per_worker, (worker + 1) * per_worker)
        for group in groups:
            self._group_generation[group] = generation
            self._commanded_at[group] = None  # of a command that its predecessor never saw
            self._wants_start(group)
        return groups

    def _read(self, timeout: float) -> list[tuple[int, ...]]:
        if not select.select([self._records], [], [], timeout)[0]:
            return []
        return list(RECORD.iter_unpack(os.read(self._records, _MOST_RECORDS * RECORD.size)))

    def _command(self, group: int, slot: int, row: int) -> None:
        self.act([Ready(group, slot, row)])

    def _close_commands(self, worker: int) -> None:
        if self._commands[worker] >= 0:
            os.close(self._commands[worker])
            self._commands[worker] = -1

    def _watch(self) -> None:
        rest, looked = b"", time.monotonic()
        try:
            while not self._closing.is_set():
                before, looked = looked, time.monotonic()
                self._clock += min(looked - before, _LONGEST_LOOK_SECONDS)
                if select.select([self._reports], [], [], _WATCH_SECONDS)[0]:
                    rest = self._take_reports(rest)
                for worker, process in enumerate(self._processes):
                    if process.poll() is not None:
                        while select.select([self._reports], [], [], 0)[0]:
                            rest = self._take_reports(rest)
                        self._replace(worker, process.returncode)
                    elif (reason := self._stuck(worker)) is not None:
                        self._errors[worker] = reason
                        process.kill()
        except Exception as error:
            self._fail(f"the thread that watches the actors ended: {error!r}")
            raise

    def _take_reports(self, rest: bytes) -> bytes:
        *lines, rest = (rest + os.read(self._reports, 1 << 16)).split(b"\n")
        for line in lines:
            message = json.loads(line)
            with self._lock:
                if "episode" in message:
                    self._episodes.append(message["episode"])
                elif "up" in message:
                    self._spawned_at[message["up"]] = None
                else:
                    self._errors[message["worker"]] = message["error"]
        return rest

    def _stuck(self, worker: int) -> str | None:
        """Why a worker is taken for dead, None if it is not."""
        config, spawned_at = self.config, self._spawned_at[worker]
        if spawned_at is not None:
            late = self._clock - spawned_at > config.start_timeout_seconds + config.warmup_seconds
            return f"it was not up after {config.start_timeout_seconds:g} seconds" if late else None
        groups = range(worker * config.groups_per_worker, (worker + 1) * config.groups_per_worker)
        all_read_at = self._all_read_at  # before the commands: those that were answered by then are gone
        since = [at for at in (self._commanded_at[group] for group in groups) if at is not None]
        late = bool(since) and all_read_at - min(since) > config.timeout_seconds
        return f"it did not answer for {config.timeout_seconds:g} seconds" if late else None

    def _replace(self, worker: int, code: int) -> None:
        error = self._errors.pop(worker, None)
        reason = f"signal {-code}" if code < 0 else f"exit code {code}"
        if error is not None:
            reason += f"\n{error}"
        self._failures[worker] = 0 if self._slots_finished[worker] else self._failures[worker] + 1
        if self._failures[worker] >= self.config.max_failures:
            self._fail(
                f"actor {worker} died {self._failures[worker]} times before it finished a rollout: {reason}"
            )
            self._closing.set()
            return
        print(f"actor {worker} died ({reason}); it is replaced", file=sys.stderr, flush=True)
        per_worker = self.config.groups_per_worker
        with self._lock:
            self.restarts += 1
            self._slots_finished[worker] = 0
            self._generation[worker] += 1
            self._commanded_at[worker * per_worker : (worker + 1) * per_worker] = [None] * per_worker
            self._close_commands(worker)
            _close_input(self._processes[worker])
            self._processes[worker] = self._spawn(worker)

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self.wake()


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # of orders that were never read
        process.stdin.close()


def _worker_environment(folder: Path) -> dict[str, str]:
    """The environment of a worker: this package importable, its own temporary folder, and no thread pools."""
    root = str(resources.ROOT)
    path = os.environ.get("PYTHONPATH")
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {
        **os.environ,
        **threads,
        "TMPDIR": str(folder),
        "PYTHONPATH": root if not path else root + os.pathsep + path,
    }
