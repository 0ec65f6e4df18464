"""Runs stages under force, and says whether they end with what they would have had undisturbed.

    bash launch/chaos.sh [MINUTES] [STAGE...]

Each scenario (scenarios.py) is a small run of a stage: twice left alone, then again and again under
force, continued by the same command, and in the end left alone. Then the outcome must be the
undisturbed one, and nothing may be left: no process, no shared memory, no temporary file, no held
lock. A line is written to FOLDER/chaos.jsonl for each such trial; a summary of all lines there is
printed at the end.

Force is one of (`--force`, forces.py):
  kill    SIGKILL of the program, or of one of the processes that it has started, at any moment from
          its first instant to its last;
  disk    a disk with room for a few kilobytes more each time, so that it is full at another write:
          one line and exit code 2.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.force.forces import FORCES
from tests.force.outcomes import rows_of
from tests.force.scenarios import OF_TORCH, SCENARIOS, Inputs
from tests.force.trials import Calm, Trial

LINES = "chaos.jsonl"
# Kills of a trial, before it is left alone.
_KILLS = 6


def _undisturbed(name: str, folder: Path, inputs: Inputs, cache: Path) -> Calm:
    """The undisturbed run of a scenario, which is made where it is not there yet."""
    path = folder / f"{name}.undisturbed.json"
    if not path.exists():
        shutil.rmtree(folder / name, ignore_errors=True)
        # The first one fills the cache of compiled programs; the second says how long it takes
        # without that.
        first = Trial(name, folder / name / "first", inputs, cache).calm().outcome
        trial = Trial(name, folder / name / "calm", inputs, cache)
        calm = trial.calm()
        assert calm.outcome == first, "two undisturbed runs differ"
        leftovers = trial.left()
        assert not leftovers, f"an undisturbed run leaves {leftovers}"
        path.write_text(json.dumps(calm._asdict()))
    return Calm(**json.loads(path.read_text()))


def attack(
    name: str,
    folder: Path,
    inputs: Inputs,
    rng: random.Random,
    force: str = "kill",
    kills: int = _KILLS,
) -> dict[str, Any]:
    """One trial of a scenario; returns its line."""
    cache = folder / "cache"
    line: dict[str, Any] = {
        "stage": name,
        "force": force,
        "compared": SCENARIOS[name].compared.words,
        "hits": [],
        "equal": False,
        "left": [],
        "problem": None,
    }
    trial = None
    try:
        calm = _undisturbed(name, folder, inputs, cache)
        shutil.rmtree(folder / name / "trial", ignore_errors=True)
        trial = Trial(name, folder / name / "trial", inputs, cache)
        line["hits"] = FORCES[force](trial, rng, calm, kills)
        line["equal"] = trial.calm().outcome == calm.outcome
        line["left"] = trial.left()
    except AssertionError as error:
        line["problem"] = str(error)[:1500]
    if trial is not None:
        line["tracebacks"] = trial.tracebacks()
        if not line["equal"] or line["left"]:
            # For whoever looks for the reason.
            line["kept"] = str(
                shutil.move(folder / name / "trial", folder / f"{name}.{trial.mark}")
            )
    return line


def tables(lines: Sequence[Mapping[str, Any]]) -> str:
    """A line for each force; where undisturbed runs differed there was no trial."""
    trials = [line for line in lines if "tracebacks" in line]
    rows = []
    for force, name in (("kill", "kills"), ("disk", "times the disk was full")):
        trials_of_force = [line for line in trials if line["force"] == force]
        if not trials_of_force:
            continue
        hits = [hit for line in trials_of_force for hit in line["hits"]]
        if force == "kill":
            struck = [hit for hit in hits if hit["hit"]]
        else:
            struck = [hit for hit in hits if hit["code"] == 2]
        equal = sum(1 for line in trials_of_force if line["equal"])
        kinds = len({line["stage"] for line in trials_of_force})
        ended = f"{equal}/{len(trials_of_force)} runs ended equal"
        rows.append(f"* {len(struck)} {name} in runs of {kinds} kinds: {ended}")
    return "\n".join(rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs stages under force.")
    parser.add_argument(
        "minutes", nargs="?", type=float, default=15.0, help="15; a stage has one trial at least"
    )
    parser.add_argument(
        "stages", nargs="*", metavar="STAGE", help=f"all by default: {', '.join(SCENARIOS)}"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/chaos"), help="where everything lies"
    )
    parser.add_argument("--force", choices=tuple(FORCES), default="kill")
    parser.add_argument(
        "--seed",
        type=int,
        help="seed of who is hit and when; what a process does then hangs on the machine",
    )
    options = parser.parse_args()
    names = ", ".join(SCENARIOS)
    unknown = [name for name in options.stages if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}; scenarios are {names}")
    if not 0 < options.minutes < float("inf"):
        parser.error(f"MINUTES={options.minutes}: must be above 0; scenarios are {names}")
    if options.force == "disk" and os.geteuid() != 0:
        parser.error("--force=disk: only root can mount a small disk")
    return options


def main() -> int:
    options = _arguments()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    # Undisturbed runs and inputs may be of another state of the code.
    for path in folder.glob("*.undisturbed.json"):
        path.unlink()
    shutil.rmtree(folder / "inputs", ignore_errors=True)

    rng = random.Random(options.seed)
    inputs = Inputs(folder / "inputs")
    left_out = set() if importlib.util.find_spec("torch") else OF_TORCH
    names = options.stages or [name for name in SCENARIOS if name not in left_out]
    deadline = time.monotonic() + 60 * options.minutes
    lines = []
    for number, name in enumerate(itertools.cycle(names)):
        if number >= len(names) and time.monotonic() > deadline:
            break
        line = attack(name, folder, inputs, rng, options.force)
        lines.append(line)
        with open(folder / LINES, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        outcome = f"equal {line['equal']}, left {line['left']}, {line['problem'] or ''}"
        print(
            f"{time.strftime('%H:%M:%S')} {name}: {len(line['hits'])} attempts, {outcome}",
            flush=True,
        )
    print(tables(rows_of(folder / LINES)))
    return 1 if any(not line["equal"] or line["left"] for line in lines) else 0


if __name__ == "__main__":
    raise SystemExit(main())
