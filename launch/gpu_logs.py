"""What the logs and files of a GPU machine's measurements say: the readers of
launch/gpu_items.py.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

OUTCOMES = ("PASSED", "FAILED", "ERROR", "SKIPPED")
# Of pytest's -v, with xdist ("[gw1] [ 5%] PASSED tests/...") and without
# ("tests/... PASSED [ 5%]").
OUTCOME_LINE = re.compile(
    rf"^\[gw\d+\].*? ({'|'.join(OUTCOMES)}) |^tests/.* ({'|'.join(OUTCOMES)}) +\["
)


@dataclasses.dataclass(frozen=True)
class Ended:
    """How an item's process ended: its log, when it began (seconds since 1970), and whether its
    limit ended it.
    """

    log: str
    began: float
    late: bool
    code: int


# The figures of an item, from how its process ended.
Reader = Callable[[Ended], dict[str, Any]]


def benchmark_line(ended: Ended) -> dict[str, Any]:
    """The JSON line of a benchmark; of one that ended early what it had printed: a part of its
    line, or the seconds to its first step.
    """
    lines = [line for line in ended.log.splitlines() if line.startswith('{"benchmark"')]
    if lines:
        result: dict[str, Any] = json.loads(lines[-1])
        return result
    first_step = re.search(r"first step after ([\d.]+) s", ended.log)
    return {"first_step_seconds": float(first_step.group(1))} if first_step else {}


def cold_line(ended: Ended) -> dict[str, Any]:
    """Of a program's first start nothing but its seconds and when each phase began: other programs
    may run beside it.
    """
    line = benchmark_line(ended)
    return {"first_step_seconds": line.get("first_step_seconds"), "phases": phases(ended.log)}


def warm_line(ended: Ended) -> dict[str, Any]:
    """The JSON line of a benchmark, and how many of its compiled programs came from disk; None
    where its log does not say it.
    """
    reused = re.search(r"(?m)^compiled programs that came from .*: (\d+), ", ended.log)
    programs = int(reused.group(1)) if reused else None
    return {"reused_programs": programs, **benchmark_line(ended)}


def benchmark_and_phases(ended: Ended) -> dict[str, Any]:
    """The JSON line of a benchmark, and when each phase of its start began."""
    return {"phases": phases(ended.log), **benchmark_line(ended)}


def phases(log: str) -> dict[str, float]:
    """When each phase of a start first began, in seconds since the process did."""
    began: dict[str, float] = {}
    for name, seconds in re.findall(r"(?m)^phase (\w+) begins after ([\d.]+) s", log):
        began.setdefault(name, float(seconds))
    return began


def tests_line(ended: Ended) -> dict[str, Any]:
    """Counts of the tests that ran, also where time was over before all had; names of those that
    failed.
    """
    counts = dict.fromkeys(OUTCOMES, 0)
    failed = []
    for line in ended.log.splitlines():
        match = OUTCOME_LINE.search(line)
        if match is None:
            continue
        outcome = match.group(1) or match.group(2)
        counts[outcome] += 1
        if outcome in ("FAILED", "ERROR"):
            failed.append(re.sub(r"\[gw\d+\] | *\[ *\d+%\]", "", line).replace(outcome, "").strip())
    return {"tests": {word.lower(): count for word, count in counts.items()}, "failed": failed[:40]}


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, up to one that a kill has cut off."""
    rows = []
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


def rate_of(rows: list[dict[str, Any]]) -> float | None:
    """Environment steps a second between the first and the last of some rows of metrics.jsonl."""
    if len(rows) < 2 or rows[-1]["time"] <= rows[0]["time"]:
        return None
    return float((rows[-1]["step"] - rows[0]["step"]) / (rows[-1]["time"] - rows[0]["time"]))


def training_reader(run: Path) -> Reader:
    """Speed at the start of a training and after its policy has settled, in steps and in turns of
    the game, and its curve.

    The reader raises ValueError for a training that its limit ended before it wrote metrics.
    """

    def read(ended: Ended) -> dict[str, Any]:
        # Without the rows of an earlier call in the same work folder.
        rows = [row for row in json_lines(run / "metrics.jsonl") if row["time"] >= ended.began]
        if not rows:
            raise ValueError("the training wrote no metrics")
        last = rows[-1]
        duration = last["time"] - ended.began
        settled = [row for row in rows if row["time"] - ended.began >= 2 / 3 * duration]
        steps_per_second = rate_of(settled)
        episodes = [
            row for row in json_lines(run / "episodes.jsonl") if row["step"] >= settled[0]["step"]
        ]
        turns_per_step = _turns_per_step(episodes)
        turns_per_second = None
        if steps_per_second and turns_per_step:
            turns_per_second = steps_per_second * turns_per_step
        return {
            "first_row_seconds": rows[0]["time"] - ended.began,
            "steps": last["step"],
            "first_steps_per_second": rate_of(rows[: max(2, len(rows) // 8)]),
            "settled_steps_per_second": steps_per_second,
            "settled_turns_per_second": turns_per_second,
            "turns_per_step": turns_per_step,
            "settled_episodes": len(episodes),
            "curve": curve(rows, ended.began),
            "last_metrics": {name: value for name, value in last.items() if value is not None},
        }

    return read


def _turns_per_step(episodes: list[dict[str, Any]]) -> float | None:
    """Turns of the game per step of the environment; None without episodes, or for a game without
    turns.
    """
    steps = sum(row["length"] for row in episodes)
    if not steps or "turns" not in episodes[0]:
        return None
    return float(sum(row["turns"] for row in episodes) / steps)


def curve(rows: list[dict[str, Any]], began: float, points: int = 12) -> list[dict[str, Any]]:
    """At most `points` rows, evenly spaced: seconds, steps, and the returns and success that the
    task has.
    """
    names = ("episode/return", "episode/intrinsic_return", "episode/success")
    # Rounded up, so that there are no more than `points`.
    every = max(1, -(-len(rows) // points))
    return [
        {
            "seconds": round(row["time"] - began, 1),
            "step": row["step"],
            **{name: row[name] for name in names if row.get(name) is not None},
        }
        for row in rows[every - 1 :: every]
    ]


def nothing(ended: Ended) -> dict[str, Any]:
    """Of what is made for later items: how long it took, which every line has, is all."""
    del ended
    return {}
