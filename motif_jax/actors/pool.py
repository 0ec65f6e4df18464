"""Starts, commands, watches, replaces and ends actor processes."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from motif_jax.actors import folders, launchers
from motif_jax.actors.cores import Cores
from motif_jax.actors.launchers import Death, ExecLauncher, ForkLauncher, Launcher, ServerLostError
from motif_jax.actors.lives import Lives
from motif_jax.actors.member import COMMAND, RECORD
from motif_jax.actors.rings import Rings
from motif_jax.actors.rollouts import END_ROW, HELLO_ROW, ActorsConfig, Ready, Rollouts, SlotListener
from motif_jax.actors.teams import Member, members, ring_size
from motif_jax.support.interruption import StoppedError, never

_WATCH_SECONDS = 0.1
_CLOSE_SECONDS = 5.0
# What counts at most of the time between two looks of the thread that watches: what is longer is a pause of this process.
_LONGEST_LOOK_SECONDS = 1.0
_MOST_RECORDS = 2048
_WAKE = RECORD.pack(-1, -1, 0, 0)


class ActorPool(Rollouts):
    """The groups of `config` in processes that share the slots.

    A group is played by a ring of processes (`teams`): a command goes to its first one, the round is handed from process to
    process, and the last one writes a record to the pipe that this process reads. A process that dies is replaced: its
    group's unfinished slot is dropped and the group's environments start new episodes; the other groups continue. Engines keep
    their files in a temporary folder of each process, which goes with the process, or with its successor's start when it was
    killed.

    A process is taken for dead when all that was in the pipe of records has been read and an answer of the group that it holds
    up has still been missing for too long, by a clock that stands still while this process does (Ctrl-Z, a debugger, a frozen
    container).
    """

    def __init__(
        self,
        config: ActorsConfig,
        next_episode: Sequence[int] | None = None,
        listeners: Sequence[SlotListener] = (),
    ) -> None:
        super().__init__(config, next_episode, listeners)
        self._members: list[Member] = []
        self._rings: Rings | None = None
        self._records, self._records_in = os.pipe()
        self._news = select.poll()
        self._news.register(self._records, select.POLLIN)
        self._reports, self._reports_in = os.pipe()
        self._folder: Path | None = None
        self._folder_lock = -1
        self._cores: Cores | None = None
        self._launcher: Launcher | None = None
        self._pids: list[int] = []
        self._lives = Lives(0)
        # Deaths in each group, and how many there were when it was started. Commands carry that: one that was decided on before
        # a process died must not be its successor's first.
        self._generation = self.slots.generation.tolist()
        self._started_generation = [0] * config.groups
        # Seconds that this process has been seen to run; only the thread that watches moves it on.
        self._clock = 0.0
        # By that clock: the commands that have no answer yet, and the last time that no record was left unread.
        self._commanded_at: list[float | None] = [None] * config.groups
        self._all_read_at = 0.0
        self._server_failures = 0
        self._slots_finished = [0] * config.groups
        self._episodes: list[dict[str, Any]] = []
        self._failure: tuple[str, Exception | None] | None = None  # why, and what it comes of
        self._closing = threading.Event()
        self._closed = False
        self._lock = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name="actor-watch", daemon=True)

    def prepare(self) -> str:
        """See `Rollouts.prepare`. The processes are forked, or started one by one where forking fails."""
        config = self.config
        if config.games_per_process is None:
            from motif_jax.actors import tuning  # which plays with pools

            self.config = config = dataclasses.replace(
                config, games_per_process=tuning.games_per_process(config)
            )
        self._members, self._rings = members(config), Rings(config)
        if config.cores is None:
            self._cores = Cores(config.workers)
            self.config = config = dataclasses.replace(config, cores=self._cores.numbers)
        self._lives = Lives(len(self._members))
        self._folder, self._folder_lock = folders.create()
        reason = launchers.no_use_of_forks() if config.start_method == "auto" else None
        if config.start_method != "exec" and reason is None:
            try:
                self._launcher = self._fork_launcher()
            except launchers.RefusedError as error:
                reason = str(error)
        manner = [f"at most {config.games_per_process} games in a process"]
        if self._launcher is None:
            self._launcher = ExecLauncher(*self._setup())
            manner.append("started one by one, which is slower" + (f" ({reason})" if reason else ""))
        return ", ".join(filter(None, [*manner, super().prepare()]))

    def start(self, stopped: Callable[[], bool] = never) -> None:
        """Starts the processes and the thread that watches them; see `Rollouts.start`."""
        if self._launcher is None:
            self.prepare()
        for member in self._members:
            first_of_worker = member.place == 0 and member.group % self.config.groups_per_worker == 0
            if first_of_worker and stopped():
                raise StoppedError
            try:
                self._pids.append(self._launch(member))
            except ServerLostError as error:
                raise RuntimeError(f"the process that actors are forked from died at once: {error}") from None
        self._watcher.start()

    def pids(self) -> list[int]:
        """Process ids of the actors."""
        with self._lock:
            return list(self._pids)

    def ready(self, timeout: float) -> list[Ready]:
        self.begun_anew.clear()
        ready = self._go_on()
        read_at = self._clock
        records = self._read(0.0 if ready else timeout)
        for generation, group, slot, row in records:
            if group < 0 or generation != self._generation[group]:
                continue  # a slot was released, or one of the group's processes has died since
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
        """See `Rollouts.act`; one write for a group, whatever the number of its processes."""
        assert self._rings is not None
        clock, generation, first = self._clock, self._started_generation, self._rings.first
        for group, slot, row in ready:
            self._commanded_at[group] = clock
            os.write(first[group], COMMAND.pack(generation[group], slot, row))

    def release(self, slot: int) -> None:
        """See `Rollouts.release`; wakes the thread in `ready`."""
        super().release(slot)
        self.wake()

    def wake(self) -> None:
        """Makes a `ready` that waits return."""
        self._say(_WAKE)

    def episodes(self) -> list[dict[str, Any]]:
        with self._lock:
            finished, self._episodes = self._episodes, []
        return finished

    def close(self) -> None:
        """Ends the processes by a last command; those that have not ended in five seconds are killed."""
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        if self._watcher.is_alive():
            self._watcher.join()
        with self._lock:
            if self._rings is not None:
                self._rings.close(COMMAND.pack(0, -1, END_ROW))
            if self._launcher is not None:
                launchers.see_off(self._launcher, self._lives.alive, self._pids, _CLOSE_SECONDS)
                self._launcher.close()
            for descriptor in (self._records, self._records_in, self._reports, self._reports_in):
                os.close(descriptor)
            self._records_in = -1
        if self._cores is not None:
            self._cores.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._folder_lock)
        self.slots.close()

    def _setup(self) -> tuple[dict[str, Any], list[int]]:
        """The orders that all processes have in common, and the file descriptors among them."""
        setup = {
            "config": dataclasses.asdict(self.config),
            "layout": str(self.slots.layout),
            "memory": self.slots.descriptor,
            "records": self._records_in,
            "reports": self._reports_in,
            "folders": str(self._folder),
        }
        return setup, [self.slots.descriptor, self._folder_lock, self._records_in, self._reports_in]

    def _fork_launcher(self) -> ForkLauncher:
        return ForkLauncher(*self._setup(), self.config.start_timeout_seconds)

    def _launch(self, member: Member) -> int:
        assert self._folder is not None
        assert self._launcher is not None
        assert self._rings is not None
        number, generation = member.number, self._generation[member.group]
        self._lives.begin(number, generation, self._clock)
        orders = {
            "member": number,
            "generation": generation,
            "folder": str(folders.renew(self._folder, number)),
            "resumes": self._resumes,
            # Where the games that are remembered end the process again, others are begun.
            "again": self._lives.failures[number] > 1,
        }
        if self.config.remembered and (generation or self._resumes):
            self.rebuilt += member.stop - member.start
        pid = self._launcher.start(orders | self._rings.descriptors(member))
        self._lives.alive.add(number)
        return pid

    def _read(self, timeout: float) -> list[tuple[int, ...]]:
        if not self._news.poll(1000 * timeout):
            return []
        return list(RECORD.iter_unpack(os.read(self._records, _MOST_RECORDS * RECORD.size)))

    def _command(self, group: int, slot: int, row: int) -> None:
        self.act([Ready(group, slot, row)])

    def _watch(self) -> None:
        rest, looked = b"", time.monotonic()
        try:
            while not self._closing.is_set():
                before, looked = looked, time.monotonic()
                self._clock += min(looked - before, _LONGEST_LOOK_SECONDS)
                rest = self._take_reports(rest, _WATCH_SECONDS)
                assert self._launcher is not None
                try:
                    deaths = self._launcher.deaths()
                    self._lives.bury(deaths)
                    if deaths:  # what they have said before
                        rest = self._take_reports(rest, 0)
                    for death in deaths:
                        self._replace(death)
                except ServerLostError as error:
                    self._start_over(error)
                self._end_those_that_hang()
        except Exception as error:
            self._fail(f"the actors cannot continue: {error}", error)

    def _take_reports(self, rest: bytes, seconds: float) -> bytes:
        while launchers.readable(self._reports, seconds):
            *lines, rest = (rest + os.read(self._reports, 1 << 16)).split(b"\n")
            for line in lines:
                self._take_report(json.loads(line))
            seconds = 0
        return rest

    def _take_report(self, message: dict[str, Any]) -> None:
        if "full_disk" in message:  # no other process would have more room
            number, file = message["full_disk"]
            raise OSError(number, os.strerror(number), file)
        with self._lock:
            if "episode" in message:
                self._episodes.append(message["episode"])
                return
        number = message["member"]
        if "error" in message:
            self._lives.blame(number, message["error"])
        elif message["generation"] == self._lives.launched[number]:
            self._lives.came_up(number)
            group = self._members[number].group
            if self._lives.is_up(member.number for member in self._ring(group)):
                self._say(RECORD.pack(self._generation[group], group, -1, HELLO_ROW))

    def _ring(self, group: int) -> list[Member]:
        size = ring_size(self.config)
        return self._members[group * size : (group + 1) * size]

    def _end_those_that_hang(self) -> None:
        # Before the commands: those that were answered by then are gone.
        config, all_read_at = self.config, self._all_read_at
        seconds = config.start_timeout_seconds
        for number in self._lives.late(self._clock, seconds + config.warmup_seconds):
            self._end(number, f"it was not up after {seconds:g} seconds")
        for group, since in enumerate(self._commanded_at):
            ring = self._ring(group)
            late = since is not None and all_read_at - since > config.timeout_seconds
            if since is None or not late or not self._lives.is_up(member.number for member in ring):
                continue
            assert self._rings is not None
            place = self._rings.hanging_place(group, int(self.slots.turn[group]), all_read_at - since)
            if place is not None:
                self._commanded_at[group] = None
                self._end(ring[place].number, f"it did not answer for {config.timeout_seconds:g} seconds")

    def _end(self, number: int, reason: str) -> None:
        self._lives.blame(number, reason)
        self._lives.came_up(number)  # it is not to be ended twice
        launchers.end(self._pids[number])

    def _replace(self, death: Death) -> None:
        member = self._members[death.member]
        reason = self._lives.end(death, works=bool(self._slots_finished[member.group]))
        if reason is None:
            return
        number, failures = member.number, self._lives.failures[member.number]
        if failures >= self.config.max_failures:
            self._fail(f"actor {number} died {failures} times before it finished a rollout: {reason}")
            self._closing.set()
            return
        print(f"actor {number} died ({reason}); it is replaced", file=sys.stderr, flush=True)
        self._renew([member])

    def _start_over(self, error: ServerLostError | launchers.RefusedError) -> None:
        """The fork server died: another takes its place, and all processes are renewed."""
        works = any(self._slots_finished)
        while True:
            self._server_failures = 0 if works else self._server_failures + 1
            if self._server_failures >= self.config.max_failures:
                self._fail(
                    f"the process that actors are forked from died before a rollout was finished: {error}"
                )
                self._closing.set()
                self._lives.alive.clear()
                return
            print(
                f"the process that actors are forked from died ({error}); all are replaced",
                file=sys.stderr,
                flush=True,
            )
            launchers.wait_until_gone(self._pids, _CLOSE_SECONDS)
            self._lives.alive.clear()
            works = False
            try:
                self._launcher = self._fork_launcher()
                self._renew(self._members)
                return
            except (ServerLostError, launchers.RefusedError) as again:
                error = again

    def _renew(self, lost: Sequence[Member]) -> None:
        """Starts processes in the place of those that are lost; their groups start again when they are up."""
        assert self._rings is not None
        groups, per_worker = sorted({member.group for member in lost}), self.config.groups_per_worker
        for group in groups:
            self._generation[group] += 1
            # Before the turn is given back: no round of before gives it back then.
            self.slots.generation[group] = self._generation[group]
            self.slots.turn[group] = 0
            self._slots_finished[group] = 0
            self._commanded_at[group] = None
            self._rings.give_back_turn(group)
            first = group // per_worker * per_worker
            for other in range(first, first + per_worker):
                if self._commanded_at[other] is not None:  # it may have waited for its turn
                    self._commanded_at[other] = self._clock
        for member in lost:
            pid = self._launch(member)
            with self._lock:
                self.restarts += 1
                self._pids[member.number] = pid

    def _say(self, record: bytes) -> None:
        with self._lock:
            if self._records_in >= 0:
                os.write(self._records_in, record)

    def _fail(self, reason: str, cause: Exception | None = None) -> None:
        self._failure = reason, cause
        self.wake()
