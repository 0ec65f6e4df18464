"""One run folder of a scenario under force: started, killed at a moment, continued, compared, and
searched for what it left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests import processes
from tests.force.scenarios import SCENARIOS, Inputs

MARK = "MOTIF_JAX_CHAOS"
_GONE_SECONDS = 90.0
_RUN_SECONDS = 300.0
# Of the kills, those of the program itself.
_SHARE_OF_PROGRAM = 0.6
# Of the kills, those that come before anything was written, and of the others those that wait for
# the next write.
_SHARE_OF_START = 0.15
_SHARE_OF_WRITES = 0.4
_WRITE_SECONDS = 1.0
_LOG = "log"
_LOCK = ".lock"
# Where pairs and dialogues are gathered until they are all there, and where checkpoints are built.
_STAGING = ".staging"
_SAVING = ".saving"


class Calm(NamedTuple):
    """An undisturbed run: what came out, how long it took, and when it had written its first
    file.
    """

    outcome: Any
    seconds: float
    ready: float


class Trial:
    """One run folder of a scenario, with everything that belongs to it."""

    def __init__(self, name: str, folder: Path, inputs: Inputs, cache: Path) -> None:
        """`cache`: of compiled programs."""
        self.scenario = SCENARIOS[name]
        self.mark = uuid.uuid4().hex
        # What a full disk is tried with.
        self.folder = folder / "disk"
        self.workdir = self.folder / "run"
        self.temporary = folder / "temporary"
        self.log = folder / _LOG
        self.temporary.mkdir(parents=True)
        self.folder.mkdir(exist_ok=True)
        self._typed = folder / "typed"
        self._typed.write_text(self.scenario.typed)
        self.flags = self.scenario.flags(inputs, self.folder)
        self.memory = processes.unused_shared_memory()
        self.environment = {
            "TMPDIR": str(self.temporary),
            MARK: self.mark,
            "XDG_CACHE_HOME": str(cache),
            "HF_HUB_OFFLINE": "1",
        }

    def start(self) -> processes.Program:
        """The command, from the beginning or from where it stands."""
        return processes.launch(
            self.workdir,
            self.scenario.config,
            *self.flags,
            log=self.log,
            typed=self._typed,
            **self.environment,
        )

    def run(self) -> tuple[int, str]:
        """Lets it end; the exit code, and what it said."""
        log_size = self.log.stat().st_size if self.log.exists() else 0
        program = self.start()
        with processes.ended([program]):
            code = self._end_of(program)
        return code, self.log.read_bytes()[log_size:].decode(errors="replace")

    @staticmethod
    def _end_of(program: processes.Program) -> int:
        try:
            return program.wait(_RUN_SECONDS)
        except processes.subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end within {_RUN_SECONDS:.0f} s") from None

    def calm(self) -> Calm:
        """Lets it run to its end."""
        written = self._written()
        start = time.monotonic()
        program = self.start()
        with processes.ended([program]):
            self._await(program, lambda: self._written() != written, _RUN_SECONDS)
            ready = time.monotonic() - start
            code = self._end_of(program)
        seconds = time.monotonic() - start
        assert code == 0, f"exit code {code}: {self.log.read_text(errors='replace')[-900:]}"
        outcome = self.scenario.compared.of(self.workdir, self.folder)
        return Calm(json.loads(json.dumps(outcome)), seconds, ready)

    def disturb(self, rng: random.Random, calm: Calm, share: float) -> dict[str, Any]:
        """Starts it and kills one of its processes: what was hit (None: it had ended before), and
        its exit code.

        `share`: of its work, as much as is probably not done yet; 0: it hits when the first file is
        written.
        """
        written = self._written()
        half_written = self._half_written()
        work = max(0.3, 1.05 * calm.seconds - calm.ready) * share
        early = share > 0 and rng.random() < _SHARE_OF_START
        seconds = rng.random() * calm.ready if early else calm.ready + rng.random() * work
        awaits_write = not early and rng.random() < _SHARE_OF_WRITES
        program = self.start()
        with processes.ended([program]):
            if share == 0:
                self._await(program, lambda: self._written() != written, _RUN_SECONDS)
            else:
                with contextlib.suppress(processes.subprocess.TimeoutExpired):
                    program.wait(seconds)
                if awaits_write:
                    self._await(
                        program, lambda: self._half_written() - half_written, _WRITE_SECONDS
                    )
            if program.process.poll() is not None:
                return {"hit": None, "code": program.process.returncode}
            others = sorted(processes.descendants(program.pid))
            hits_program = not others or rng.random() < _SHARE_OF_PROGRAM
            hit = program.pid if hits_program else rng.choice(others)
            name = "the program" if hits_program else "one of its processes"
            with contextlib.suppress(ProcessLookupError):
                os.kill(hit, signal.SIGKILL)
            code = self._end_of(program)
            process_ids = {program.pid, *others}
        processes.wait_until(
            lambda: (
                not processes.still_there(process_ids)
                and not processes.processes_with(MARK, self.mark)
            ),
            f"the end of the processes of {name}",
            _GONE_SECONDS,
        )
        return {"hit": name, "code": code}

    @staticmethod
    def _await(program: processes.Program, is_seen: Callable[[], object], seconds: float) -> None:
        """Returns at the first sight of something, at the program's end, or when the time is
        over.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and program.process.poll() is None and not is_seen():
            time.sleep(0.001)

    def _written(self) -> set[Any]:
        """All files but locks, which are written before anything is done, each with its size and
        time.
        """
        return _states(
            path for path in self.folder.rglob("*") if path.name != _LOCK and not path.is_dir()
        )

    def _half_written(self) -> set[Any]:
        """What somebody is about to rename into its place."""
        return _states(_unfinished(self.folder))

    def left(self) -> list[str]:
        """What is there that should not be, after the end."""
        # Python's tracker of resources ends when it has seen that the others have.
        with contextlib.suppress(AssertionError):
            processes.wait_until(
                lambda: (
                    not processes.processes_with(MARK, self.mark)
                    and processes.unused_shared_memory() <= self.memory
                ),
                "the end of all",
                _GONE_SECONDS,
            )
        leftovers = [f"process {pid}" for pid in processes.processes_with(MARK, self.mark)]
        leftovers += [f"temporary {name}" for name in os.listdir(self.temporary)]
        leftovers += [f"file {path.relative_to(self.folder)}" for path in _unfinished(self.folder)]
        leftovers += [
            f"folder {path.relative_to(self.folder)}" for path in self.folder.rglob(_STAGING)
        ]
        for lock in self.folder.rglob(_LOCK):
            with open(lock) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    leftovers.append(f"lock {lock.name}")
        return leftovers + [
            f"memory {name}" for name in processes.unused_shared_memory() - self.memory
        ]

    def tracebacks(self) -> int:
        """How often the log has one."""
        return self.log.read_text(errors="replace").count("Traceback (most recent call last)")


def _states(paths: Iterable[Path]) -> set[Any]:
    states = set()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            states.add((path, status.st_size, status.st_mtime_ns))
    return states


def _unfinished(folder: Path) -> Iterator[Path]:
    """Files and folders that are not whole yet, or not yet gone: in the end there must be none."""
    for parent, folders, names in os.walk(folder):
        folder_path = Path(parent)
        for name in [*folders, *names]:
            is_partial = (
                name.endswith((".tmp", ".part"))
                or "orbax-checkpoint-tmp" in name
                or name == "assembled"
            )
            if is_partial or name.startswith(".removed-") or folder_path.name == _SAVING:
                yield folder_path / name
