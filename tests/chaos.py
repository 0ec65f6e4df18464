"""Runs stages under force, and says whether they end with what they would have had undisturbed.

    bash launch/chaos.sh [MINUTES] [STAGE...]

Each scenario (scenarios.py) is a small run of a stage: once left alone, then again and again under force, continued by the same command, and
in the end left alone. Then the outcome must be the undisturbed one, and nothing may be left: no process, no shared memory, no temporary file,
no held lock. A line is written to FOLDER/chaos.jsonl for each such trial; the table of all lines there is printed at the end.

Force is one of (`--force`):
  kill   SIGKILL of the program, or of one of the processes that it has started, at any moment from its first instant to its last;
  disk   a disk with room for a few kilobytes more each time, so that it is full at another write: one line and exit code 2;
  clock  the clock of the wall jumps back and forth by up to a day.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest

from tests import processes
from tests.reward_fixtures import environment
from tests.scenarios import SCENARIOS, Inputs, rows_of

MARK = "MOTIF_JAX_CHAOS"
LINES = "chaos.jsonl"
_GONE_SECONDS = 90.0
_RUN_SECONDS = 900.0
# Kills of a trial, before it is left alone.
_KILLS = 4
# Of the kills, those of the program itself.
_SHARE_OF_PROGRAM = 0.6
_PROGRAM = "the program"
CLOCK = Path(__file__).parent / "jumping_clock"


class Trial:
    """One run folder of a scenario, with everything that belongs to it."""

    def __init__(self, name: str, folder: Path, inputs: Inputs, cache: Path, **more: str) -> None:
        """`more`: of the environment of its programs."""
        self.scenario, self.folder, self.mark = SCENARIOS[name], folder / "disk", uuid.uuid4().hex
        self.workdir, self.temporary, self.log = self.folder / "run", folder / "temporary", folder / "log"
        self.temporary.mkdir(parents=True)
        self.folder.mkdir(exist_ok=True)
        self.flags = self.scenario.flags(inputs, self.folder)
        self.memory = processes.unused_shared_memory()
        self.environment = {
            "TMPDIR": str(self.temporary),
            MARK: self.mark,
            "XDG_CACHE_HOME": str(cache),
            "HF_HUB_OFFLINE": "1",
            **more,
        }

    def start(self) -> processes.Program:
        """The command, from the beginning or from where it stands."""
        command = [
            sys.executable, "-m", "motif_jax.launch", f"--config=configs/{self.scenario.config}", f"--workdir={self.workdir}", *self.flags,
        ]  # fmt: skip
        return processes.Program(command, self.log, {**environment(), **self.environment})

    def finish(self) -> tuple[Any, float]:
        """Lets it run to its end; returns the outcome and how long it took."""
        start = time.monotonic()
        program = self.start()
        with processes.ended([program]):
            code = program.wait(_RUN_SECONDS)
        took = time.monotonic() - start
        assert code == 0, f"exit code {code}: {self._end_of_log()}"
        return self.scenario.outcome(self.workdir, self.folder), took

    def disturb(self, rng: random.Random, seconds: float) -> dict[str, Any]:
        """Starts it and kills one of its processes; waits for the end of the program. What was hit, and the exit code."""
        program = self.start()
        with processes.ended([program]):
            with contextlib.suppress(processes.subprocess.TimeoutExpired):
                program.wait(rng.random() * seconds)
                return {"hit": None, "code": program.process.returncode}
            others = sorted(processes.descendants(program.pid))
            own = not others or rng.random() < _SHARE_OF_PROGRAM
            hit = program.pid if own else rng.choice(others)
            what = _PROGRAM if own else _name_of(hit)
            with contextlib.suppress(ProcessLookupError):
                os.kill(hit, signal.SIGKILL)
            code = program.wait(_RUN_SECONDS)
            seen = {program.pid, *others}
        gone = _comes(
            lambda: not processes.still_there(seen) and not processes.processes_with(MARK, self.mark)
        )
        assert gone, f"processes outlive {what}: {processes.processes_with(MARK, self.mark)}"
        return {"hit": what, "code": code}

    def left(self) -> list[str]:
        """What is there that should not be, after the end."""
        found = [f"process {pid}" for pid in processes.processes_with(MARK, self.mark)]
        found += [f"temporary {name}" for name in os.listdir(self.temporary)]
        for parent, _, names in os.walk(self.workdir):
            inside = os.path.relpath(parent, self.workdir)
            cut = [name for name in names if name.endswith(".tmp") or "orbax-checkpoint-tmp" in name]
            found += [f"file {inside}/{name}" for name in cut]
            found += [f"folder {inside}"] * (os.path.basename(parent) == ".staging")
        for lock in self.workdir.rglob(".lock"):
            with open(lock) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    found.append(f"lock {lock.name}")
        if not _comes(lambda: processes.unused_shared_memory() <= self.memory):
            found += [f"memory {name}" for name in processes.unused_shared_memory() - self.memory]
        return found

    def _end_of_log(self) -> str:
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-6:])[-900:]

    def tracebacks(self) -> int:
        """How often the log has one."""
        return self.log.read_text(errors="replace").count("Traceback (most recent call last)")


def _comes(condition: Callable[[], object], seconds: float = _GONE_SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _name_of(pid: int) -> str:
    """What a process is, by its command."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        for word in words[1:]:
            if "motif_jax" in word or "multiprocessing" in word:
                return word.split("import ")[-1][:60]
        return words[0][:60]
    return "a process that was gone"


def kill(trial: Trial, rng: random.Random, seconds: float, kills: int) -> list[dict[str, Any]]:
    """Kills it so many times at most, unless it ends before."""
    hits: list[dict[str, Any]] = []
    while len(hits) < kills and not (hits and hits[-1]["code"] == 0):
        hits.append(trial.disturb(rng, seconds))
    return hits


def fill(trial: Trial, rng: random.Random, seconds: float, kills: int) -> list[dict[str, Any]]:
    """Gives it a little more room each time, until it comes to its end."""
    del seconds, kills
    hits: list[dict[str, Any]] = []
    used, room = _size(trial.folder), 4096.0
    copy = trial.folder.with_name("copy")
    trial.folder.rename(copy)
    trial.folder.mkdir()
    with processes.small_disk(trial.folder, used + (64 << 20)) as resize:
        shutil.copytree(copy, trial.folder, dirs_exist_ok=True)
        try:
            while not hits or hits[-1]["code"] != 0:
                with contextlib.suppress(pytest.skip.Exception):  # less than there is
                    resize(_size(trial.folder) + int(room))
                before = trial.log.stat().st_size if trial.log.exists() else 0
                program = trial.start()
                with processes.ended([program]):
                    code = program.wait(_RUN_SECONDS)
                said = [
                    line
                    for line in trial.log.read_text(errors="replace")[before:].splitlines()
                    if "error" in line.lower() or "Traceback" in line
                ]
                hits.append({"hit": f"{room:.0f} bytes", "code": code})
                good = code == 0 or (code == 2 and len(said) == 1 and said[0].startswith("error: "))
                assert good, f"with {room:.0f} bytes more, exit code {code}: {' | '.join(said)[-700:]}"
                room *= 1.5 + rng.random()
        finally:
            shutil.rmtree(copy)
            shutil.copytree(trial.folder, copy)
    trial.folder.rmdir()
    copy.rename(trial.folder)
    return hits


def _size(folder: Path) -> int:
    """Bytes on a disk whose pages have 4 KiB, a page a file or folder at least."""
    return 4096 * sum(1 + -(-path.lstat().st_size // 4096) for path in [folder, *folder.rglob("*")])


def turn_back(trial: Trial, rng: random.Random, seconds: float, kills: int) -> list[dict[str, Any]]:
    """Lets the clock jump, and kills it once."""
    trial.environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(CLOCK), os.environ.get("PYTHONPATH")))
    )
    return kill(trial, rng, seconds, min(kills, 1))


FORCES = {"kill": kill, "disk": fill, "clock": turn_back}


def attack(
    name: str, folder: Path, inputs: Inputs, rng: random.Random, force: str = "kill", kills: int = _KILLS
) -> dict[str, Any]:
    """One trial of a scenario; the undisturbed outcome is made where it is not there yet. Returns its line."""
    known, cache = folder / f"{name}.undisturbed.json", folder / "cache"
    line: dict[str, Any] = {
        "stage": name,
        "force": force,
        "hits": [],
        "equal": False,
        "left": [],
        "problem": None,
    }
    trial = None
    try:
        if not known.exists():
            shutil.rmtree(folder / name, ignore_errors=True)
            Trial(
                name, folder / name / "first", inputs, cache
            ).finish()  # fills the cache of compiled programs
            calm = Trial(name, folder / name / "calm", inputs, cache)
            outcome, took = calm.finish()
            left = calm.left()
            assert not left, left
            known.write_text(json.dumps({"outcome": outcome, "seconds": took}))
        undisturbed = json.loads(known.read_text())
        shutil.rmtree(folder / name / "trial", ignore_errors=True)
        trial = Trial(name, folder / name / "trial", inputs, cache)
        line["hits"] = FORCES[force](trial, rng, undisturbed["seconds"], kills)
        outcome, _ = trial.finish()
        line["equal"] = json.loads(json.dumps(outcome)) == undisturbed["outcome"]
        line["left"] = trial.left()
    except AssertionError as error:
        line["problem"] = str(error)[:1500]
    if trial is not None:
        line["tracebacks"] = trial.tracebacks()
        if not line["equal"] or line["left"]:
            line["kept"] = str(shutil.move(folder / name / "trial", folder / f"{name}.{trial.mark}"))
    return line


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """A row a scenario and force: how often, whom it hit, and what became of it."""
    rows = [
        "| stage | force | trials | hits | of the program | of its processes | ended as undisturbed | left behind |",
        "|---|---|---|---|---|---|---|---|",
    ]
    kinds = dict.fromkeys((line["stage"], line["force"]) for line in lines)
    for name, force in [*kinds, *((None, force) for force in dict.fromkeys(force for _, force in kinds))]:
        mine = [line for line in lines if name in (None, line["stage"]) and line["force"] == force]
        hits = [
            hit
            for line in mine
            for hit in line["hits"]
            if hit["hit"] and not (force == "disk" and hit["code"] == 0)
        ]
        own = len(hits) if force == "disk" else sum(hit["hit"] == _PROGRAM for hit in hits)
        good, left = sum(line["equal"] for line in mine), sum(bool(line["left"]) for line in mine)
        cells = (
            name or "**all**",
            force,
            len(mine),
            len(hits),
            own,
            len(hits) - own,
            f"{good} of {len(mine)}",
            left,
        )
        rows.append(f"| {' | '.join(map(str, cells))} |")
    lost = [
        hit
        for line in lines
        if line["force"] == "kill"
        for hit in line["hits"]
        if hit["hit"] not in (None, _PROGRAM)
    ]
    return "\n".join(
        [
            *rows,
            "",
            f"exit codes of programs that lost a process: {dict(Counter(str(hit['code']) for hit in lost))}",
        ]
    )


def open_inputs(folder: Path) -> Inputs:
    """Inputs of all scenarios below `folder`, made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    return Inputs(folder)


def _turns(names: Sequence[str], until: float) -> Iterator[str]:
    """The scenarios in turn, until the time is over; each once at least."""
    for place in itertools.count():
        if place >= len(names) and time.monotonic() > until:
            return
        yield names[place % len(names)]


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Runs stages under force.")
    parser.add_argument(
        "minutes",
        nargs="?",
        type=float,
        default=15.0,
        help="15 by default; every stage has one trial at least",
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"all by default: {', '.join(SCENARIOS)}")
    parser.add_argument("--folder", type=Path, default=Path("runs/chaos"), help="where everything lies")
    parser.add_argument("--force", choices=tuple(FORCES), default="kill")
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="of who is hit and when; what it does at that moment hangs on the machine",
    )
    given = parser.parse_args()
    unknown = [name for name in given.stages if name not in SCENARIOS]
    if unknown or not 0 < given.minutes < float("inf"):
        what = f"no scenario {', '.join(unknown)}" if unknown else f"MINUTES={given.minutes}: must be above 0"
        print(f"error: {what}; scenarios are {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    if given.force == "disk" and os.geteuid() != 0:
        print("error: --force=disk: only root can mount a small disk", file=sys.stderr)
        return 2
    folder, rng = given.folder.absolute(), random.Random(given.seed)
    folder.mkdir(parents=True, exist_ok=True)
    for known in folder.glob("*.undisturbed.json"):
        known.unlink()  # of other inputs
    inputs, lines = open_inputs(folder / "inputs"), []
    for name in _turns(given.stages or list(SCENARIOS), time.monotonic() + 60 * given.minutes):
        line = attack(name, folder, inputs, rng, given.force)
        lines.append(line)
        with open(folder / LINES, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        told = [
            f"{len(line['hits'])} attempts",
            f"equal {line['equal']}",
            f"left {line['left']}",
            line["problem"] or "",
        ]
        print(f"{time.strftime('%H:%M:%S')} {name}: {', '.join(told)}", flush=True)
    print(table(rows_of(folder / LINES)))
    return int(any(not line["equal"] or line["left"] for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
