"""Runs stages under force, and says whether they end with what they would have had undisturbed.

    bash launch/chaos.sh [MINUTES] [STAGE...]

Each scenario (scenarios.py) is a small run of a stage: twice left alone, then again and again under force, continued by the same command, and
in the end left alone. Then the outcome must be the undisturbed one, and nothing may be left: no process, no shared memory, no temporary file,
no held lock. A line is written to FOLDER/chaos.jsonl for each such trial; a summary of all lines there is printed at the end.

Force is one of (`--force`, forces.py):
  kill    SIGKILL of the program, or of one of the processes that it has started, at any moment from its first instant to its last;
  disk    a disk with room for a few kilobytes more each time, so that it is full at another write: one line and exit code 2.
"""

from __future__ import annotations

import argparse
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
from tests.force.scenarios import SCENARIOS, Inputs
from tests.force.trials import Calm, Trial

LINES = "chaos.jsonl"
# Kills of a trial, before it is left alone.
_KILLS = 6


def _calm(name: str, folder: Path, inputs: Inputs, cache: Path) -> Calm:
    """The undisturbed run of a scenario, which is made where it is not there yet."""
    known = folder / f"{name}.undisturbed.json"
    if not known.exists():
        shutil.rmtree(folder / name, ignore_errors=True)
        # The first one fills the cache of compiled programs; the second says how long it takes without that.
        first = Trial(name, folder / name / "first", inputs, cache).calm().outcome
        trial = Trial(name, folder / name / "calm", inputs, cache)
        calm = trial.calm()
        assert calm.outcome == first, "two undisturbed runs differ"
        left = trial.left()
        assert not left, f"an undisturbed run leaves {left}"
        known.write_text(json.dumps(calm._asdict()))
    return Calm(**json.loads(known.read_text()))


def attack(
    name: str, folder: Path, inputs: Inputs, rng: random.Random, force: str = "kill", kills: int = _KILLS
) -> dict[str, Any]:
    """One trial of a scenario; returns its line."""
    cache = folder / "cache"
    line: dict[str, Any] = {
        "stage": name, "force": force, "compared": SCENARIOS[name].compared.what, "hits": [], "equal": False, "left": [], "problem": None,
    }  # fmt: skip
    trial = None
    try:
        calm = _calm(name, folder, inputs, cache)
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
            line["kept"] = str(shutil.move(folder / name / "trial", folder / f"{name}.{trial.mark}"))
    return line


def tables(lines: Sequence[Mapping[str, Any]]) -> str:
    """A line for each force; where undisturbed runs differed there was no trial."""
    trials = [line for line in lines if "tracebacks" in line]
    found = []
    for force, what in (("kill", "kills"), ("disk", "times the disk was full")):
        mine = [line for line in trials if line["force"] == force]
        hits = [hit for line in mine for hit in line["hits"]]
        struck = sum(bool(hit["hit"]) if force == "kill" else hit["code"] == 2 for hit in hits)
        if mine:
            equal, kinds = sum(line["equal"] for line in mine), len({line["stage"] for line in mine})
            found.append(f"* {struck} {what} in runs of {kinds} kinds: {equal}/{len(mine)} runs ended equal")
    return "\n".join(found)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs stages under force.")
    parser.add_argument(
        "minutes", nargs="?", type=float, default=15.0, help="15; a stage has one trial at least"
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"all by default: {', '.join(SCENARIOS)}")
    parser.add_argument("--folder", type=Path, default=Path("runs/chaos"), help="where everything lies")
    parser.add_argument("--force", choices=tuple(FORCES), default="kill")
    parser.add_argument(
        "--seed", type=int, help="of who is hit and when; what it does then hangs on the machine"
    )
    given = parser.parse_args()
    unknown = [name for name in given.stages if name not in SCENARIOS]
    if unknown or not 0 < given.minutes < float("inf"):
        what = f"no scenario {', '.join(unknown)}" if unknown else f"MINUTES={given.minutes}: must be above 0"
        parser.error(f"{what}; scenarios are {', '.join(SCENARIOS)}")
    if given.force == "disk" and os.geteuid() != 0:
        parser.error("--force=disk: only root can mount a small disk")
    return given


def main() -> int:
    given = _arguments()
    folder, rng = given.folder.absolute(), random.Random(given.seed)
    folder.mkdir(parents=True, exist_ok=True)
    for known in folder.glob("*.undisturbed.json"):
        known.unlink()
    shutil.rmtree(folder / "inputs", ignore_errors=True)  # of another state of the code, as what follows
    inputs, lines = Inputs(folder / "inputs"), []
    names, until = given.stages or list(SCENARIOS), time.monotonic() + 60 * given.minutes
    for place, name in enumerate(itertools.cycle(names)):
        if place >= len(names) and time.monotonic() > until:
            break
        line = attack(name, folder, inputs, rng, given.force)
        lines.append(line)
        with open(folder / LINES, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        told = f"{len(line['hits'])} attempts, equal {line['equal']}, left {line['left']}, {line['problem'] or ''}"
        print(f"{time.strftime('%H:%M:%S')} {name}: {told}", flush=True)
    print(tables(rows_of(folder / LINES)))
    return int(any(not line["equal"] or line["left"] for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
