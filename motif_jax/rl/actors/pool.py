"""Starts, commands, watches, replaces and ends actor processes."""

from __future__ import annotations

import atexit
import dataclasses
import os
import resource
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import util
from multiprocessing.connection import wait
from typing import Any

from motif_jax.core import tempdirs
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError, never
from motif_jax.envs import registry
from motif_jax.rl.actors.actor import COMMAND, EPISODE, FULL_DISK, RECORD, REFUSAL, UP, Descriptor
from motif_jax.rl.actors.actor_process import ActorProcess
from motif_jax.rl.actors.cores import Cores
from motif_jax.rl.actors.rollouts import HELLO_ROW, ActorsConfig, Ready, Rollouts, SlotSink

_WATCH_SECONDS = 0.1
_CLOSE_SECONDS = 5.0
# Most time that counts between two looks of the watching thread: in a longer one this process was paused.
_LONGEST_LOOK_SECONDS = 1.0
_MOST_RECORDS = 2048
_WAKE = RECORD.pack(-1, -1, 0, 0)  # makes a `ready` that waits return
_FILES_EACH, _OTHER_FILES = 6, 256  # open files for each process, and for everything else


class ActorPool(Rollouts):
    """Plays each group of `config` in a process; all share the slots.

    Each process has its own pipe for commands; all write records to a shared one. A process that dies is replaced: its group
    drops its unfinished slot and starts again, while the other groups continue. The two groups of a worker share a core: one
    plays while the other waits for its actions.

    A process counts as hanging if the pipe of records is empty and its answer is missing for `timeout_seconds`, by a clock that
    stops while this process is paused (Ctrl-Z, a debugger, a frozen container).
    """

    def __init__(
        self, config: ActorsConfig, next_episode: Sequence[int] = (), on_finished: SlotSink = lambda _: None
    ) -> None:
        super().__init__(config, next_episode, on_finished)
        _allow_files(config.groups * _FILES_EACH)
        modules = registry.shared_modules(config.env, **config.options)
        self._processes = [ActorProcess(config.start_method, modules) for _ in range(config.groups)]
        self._writes_to = [process.writes_to for process in self._processes]
        self._records, self._records_in = os.pipe()
        self._news = select.poll()
        self._news.register(self._records, select.POLLIN)
        self._cores: Cores | None = None
        # Deaths in each group, now and when its process was started. Commands carry the number, so that a process ignores
        # commands that were meant for its predecessor.
        self._generation = [0] * config.groups
        self._started_generation = [0] * config.groups
        # Seconds without pauses, which the watching thread counts: now, when the pipe of records was last empty, and of each
        # command without an answer.
        self._clock = self._all_read_at = 0.0
        self._commanded_at: list[float | None] = [None] * config.groups
        self._slots_finished = [0] * config.groups
        self._episodes: list[dict[str, Any]] = []
        self._failure: tuple[str, Exception | None] | None = None  # the message, and its cause
        self._closing = threading.Event()
        self._closed = False
        self._lock = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name="actor-watch", daemon=True)
        # Runs before multiprocessing's function, which would wait for the processes.
        atexit.register(self.close)

    def start(self, stopped: Callable[[], bool] = never) -> None:
        with tempdirs.own_folders():  # which is removed after a kill, too
            util.get_temp_dir()  # makes the folder of the socket of the processes' server
        if self.config.cores is None:
            self._cores = Cores(self.config.workers)
            self.config = dataclasses.replace(self.config, cores=self._cores.numbers)
        for group in range(self.config.groups):
            if group % self.config.groups_per_worker == 0 and stopped():
                raise StoppedError
            self._launch(group)
        self._watcher.start()

    def pids(self) -> list[int]:
        """Process ids of the actors, by group."""
        return [process.pid for process in self._processes if process.process is not None]

    def ready(self, timeout: float) -> list[Ready]:
        self.begun_anew.clear()
        ready = self._go_on()
        read_at = self._clock
        records: list[tuple[int, ...]] = []
        if self._news.poll(0.0 if ready else 1000 * timeout):
            records += RECORD.iter_unpack(os.read(self._records, _MOST_RECORDS * RECORD.size))
        for generation, group, slot, row in records:
            if group < 0 or generation != self._generation[group]:
                continue  # a slot was released, or the group's process has died since
            self._commanded_at[group] = None
            if row == HELLO_ROW:
                self._started_generation[group] = generation
                self._wants_start(group)
                ready = [entry for entry in ready if entry.group != group]  # read before the process died
                continue
            waiting = self._written(group, slot, row)
            if waiting is None:
                self._slots_finished[group] += 1
            else:
                ready.append(waiting)
        if len(records) < _MOST_RECORDS:
            self._all_read_at = read_at
        ready += self._go_on()
        if self._failure is not None:
            reason, cause = self._failure
            raise RuntimeError(reason) from cause
        return ready

    def act(self, ready: Sequence[Ready]) -> None:
        clock, generation, writes_to = self._clock, self._started_generation, self._writes_to
        for group, slot, row in ready:
            self._commanded_at[group] = clock
            os.write(writes_to[group], COMMAND.pack(generation[group], slot, row))

    def release(self, slot: int) -> None:
        super().release(slot)
        self._write_record(_WAKE)

    def episodes(self) -> list[dict[str, Any]]:
        with self._lock:
            finished, self._episodes = self._episodes, []
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
            for process in self._processes:
                process.dismiss()
            deadline = time.monotonic() + _CLOSE_SECONDS
            late = [not process.end(deadline) for process in self._processes]
            for descriptor in (self._records, self._records_in):
                os.close(descriptor)
            self._records_in = -1
        if any(late):
            tempdirs.remove_abandoned()
        if self._cores is not None:
            self._cores.close()
        self.slots.close()

    def _launch(self, group: int) -> None:
        process, generation = self._processes[group], self._generation[group]
        if self.config.remembered and (generation or self._resumes):
            self.rebuilt += self.config.envs_per_group
        process.start(
            self._clock,
            config=self.config,
            layout=self.slots.layout,
            group=group,
            generation=generation,
            resumes=self._resumes,
            # If the remembered games kill the process again, new ones begin.
            forget=process.failures > 1,
            memory=Descriptor(self.slots.descriptor),
            records=Descriptor(self._records_in),
        )

    def _command(self, group: int, slot: int, row: int) -> None:
        self.act([Ready(group, slot, row)])

    def _watch(self) -> None:
        looked = time.monotonic()
        try:
            while not self._closing.wait(_WATCH_SECONDS):
                before, looked = looked, time.monotonic()
                self._clock += min(looked - before, _LONGEST_LOOK_SECONDS)
                # Deaths before reports: what a dead process had reported is read first.
                dead = wait([process.sentinel for process in self._processes], 0)
                for group, process in enumerate(self._processes):
                    for kind, content in process.take_reports():
                        self._take_report(group, kind, content)
                    if process.sentinel in dead:
                        self._replace(group)
                self._end_those_that_hang()
        except Exception as error:
            self._fail(f"the actors cannot continue: {error}", error)

    def _take_report(self, group: int, kind: str, content: Any) -> None:
        if kind == EPISODE:
            with self._lock:
                self._episodes.append(content)
        elif kind == UP:
            self._processes[group].is_up = True
            self._write_record(RECORD.pack(self._generation[group], group, -1, HELLO_ROW))
        elif kind == REFUSAL:  # another process would meet the same
            raise UserError(content)
        elif kind == FULL_DISK:  # another process would have no more room
            number, file = content
            raise OSError(number, os.strerror(number), file)
        else:
            self._processes[group].error = content

    def _end_those_that_hang(self) -> None:
        # Read before the commands, so that answered ones are gone.
        config, all_read_at = self.config, self._all_read_at
        seconds = config.start_timeout_seconds
        for group, process in enumerate(self._processes):
            since = self._commanded_at[group]
            if process.is_killed:
                continue
            if not process.is_up:
                if self._clock - process.started_at > seconds + config.warmup_seconds:
                    process.kill(f"it was not up after {seconds:g} seconds")
            elif since is not None and all_read_at - since > config.timeout_seconds:
                self._commanded_at[group] = None
                process.kill(f"it did not answer for {config.timeout_seconds:g} seconds")

    def _replace(self, group: int) -> None:
        """Starts another process for one that died; the group starts again when the new one is up."""
        process = self._processes[group]
        reason = process.cause_of_death()
        process.failures = 0 if self._slots_finished[group] else process.failures + 1
        if process.failures >= self.config.max_failures:
            self._closing.set()
            self._fail(f"actor {group} died {process.failures} times before it finished a rollout: {reason}")
            return
        print(f"actor {group} died ({reason}); it is replaced", file=sys.stderr, flush=True)
        self._generation[group] += 1
        self._slots_finished[group] = 0
        self._commanded_at[group] = None
        self._launch(group)
        self.restarts += 1

    def _write_record(self, record: bytes) -> None:
        with self._lock:
            if self._records_in >= 0:
                os.write(self._records_in, record)

    def _fail(self, reason: str, cause: Exception | None = None) -> None:
        self._failure = reason, cause
        self._write_record(_WAKE)


def _allow_files(count: int) -> None:
    """Lets this process open `count` more files. Raises UserError: the system does not let it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + count + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise UserError(
            f"the actors' processes need {count} open files here and {hard} are allowed in all (ulimit -n): lower "
            "config.actors.workers"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
