"""What chaos.py does to a trial: kills, and a full disk."""

from __future__ import annotations

import contextlib
import math
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.force.trials import Calm, Trial

# Bytes of free disk that are tried first, and how many times as much the next one is, at least.
_FIRST_ROOM = 4096.0
_NEXT_ROOM = 1.5

Hits = list[dict[str, Any]]


def _is_one_line(output: str) -> bool:
    """Whether a program that failed said so in one line."""
    errors = [
        line for line in output.splitlines() if "error" in line.lower() or "Traceback" in line
    ]
    return len(errors) == 1 and errors[0].startswith("error: ")


def kill(trial: Trial, rng: random.Random, calm: Calm, kills: int) -> Hits:
    """Kills it so many times at most, unless it ends before: when it writes its first file, then at
    any moment.
    """
    hits = [trial.disturb(rng, calm, 0.0)]
    while len(hits) < kills and hits[-1]["code"] != 0:
        hits.append(trial.disturb(rng, calm, 1 - len(hits) / kills))
    return hits


def fill(trial: Trial, rng: random.Random, calm: Calm, kills: int) -> Hits:
    """Gives it a little more room on the disk each time, until it comes to its end; before that it
    says so in one line.
    """
    del calm, kills
    copy = trial.folder.with_name("copy")
    trial.folder.rename(copy)
    trial.folder.mkdir()
    with processes.small_disk(trial.folder, _size(copy) + (64 << 20)) as resize:
        shutil.copytree(copy, trial.folder, dirs_exist_ok=True)

        room = _FIRST_ROOM
        hits: Hits = []
        try:
            while not hits or hits[-1]["code"] != 0:
                # It cannot shrink below what lies on it.
                with contextlib.suppress(pytest.skip.Exception):
                    resize(_size(trial.folder) + int(room))
                code, output = trial.run()
                hit = f"{room:.0f} bytes"
                hits.append({"hit": hit, "code": code, "said": output.strip().splitlines()[-1:]})
                is_told = code == 0 or (code == 2 and _is_one_line(output))
                assert is_told, f"with {hit}, exit code {code}: {output[-900:]}"
                room *= 1 + (_NEXT_ROOM - 1) * (1 + rng.random())
        finally:
            shutil.rmtree(copy)
            shutil.copytree(trial.folder, copy)
    trial.folder.rmdir()
    copy.rename(trial.folder)
    return hits


def _size(folder: Path) -> int:
    """Bytes on a disk whose pages have 4 KiB, a page a file or folder at least."""
    return 4096 * sum(
        1 + math.ceil(path.lstat().st_size / 4096) for path in [folder, *folder.rglob("*")]
    )


FORCES = {"kill": kill, "disk": fill}
