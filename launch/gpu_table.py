"""Writes the table of a GPU's figures into docs/performance.md, from what launch/gpu_figures.sh has measured.

    python launch/gpu_table.py FIGURES.jsonl [PAGE]

The table stands between two marks in the page and is written anew. Of an item that was measured several times the last line counts that
has no error; an item that was not done in its time stands in the table as such.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- launch/gpu_table.py: begin -->", "<!-- launch/gpu_table.py: end -->"
LANGUAGE = {
    "language_update": "PPO's update, Flan-T5-large",
    "score": "scores of candidates, Flan-T5-large",
    "generate": "greedy text, GPT-2 medium",
    "text_train": "ILQL's gradient, GPT-2 small",
}
Line = dict[str, Any]


def read(path: Path) -> dict[str, Line]:
    """The line of each item by its name."""
    lines: dict[str, Line] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        before = lines.get(line["item"])
        if before is None or "error" in before or "error" not in line:
            lines[line["item"]] = line
    return lines


def table(lines: dict[str, Line]) -> str:
    """The table in markdown, with the machine above it."""
    machine = lines["machine"]
    head = (
        f"**Machine:** {machine['gpu'].removeprefix('GPU 0: ')}, {machine['cores']} cores of {machine['processor']}, jax {machine['jax']}, "
        f"Python {machine['python']}, {machine['date']}. All figures are of one call of `bash launch/gpu_figures.sh`."
    )
    rows = [
        *(_training(lines.get(name), name) for name in ("train", "train_more", "train_reward")),
        _settled(lines.get("nethack")),
        _alone(lines, "learner", "steps_per_second", "steps/s"),
        _alone(lines, "inference", "rows_per_second", "rows/s"),
        _host(lines.get("inference_host")),
        *(_language(name, lines) for name in LANGUAGE),
        _glam(lines.get("glam")),
        _tests(lines.get("numeric_tests")),
    ]
    titles = "| what | measured | beside it | command |\n|---|---|---|---|"
    return "\n".join([head, "", titles, *("| " + " | ".join(row) + " |" for row in rows)])


def replaced(page: str, made: str) -> str:
    """The page with `made` between its marks. Raises ValueError: it has no marks."""
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:start]}\n{made}\n{page[end:]}"


def number(value: float) -> str:
    """A number with three digits, or whole and with its thousands apart."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} million"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _missing(line: Line | None, key: str) -> str | None:
    """Why a line has no figure; None where it has."""
    if line is None:
        return "not measured"
    if line.get(key) is None:
        return str(line.get("error", "not measured")).split(":")[0]
    return None


def _training(line: Line | None, name: str) -> tuple[str, str, str, str]:
    what = "training with the intrinsic reward" if name == "train_reward" else "training, task's reward"
    missing = _missing(line, "value")
    if missing or line is None:
        return what, missing or "", "", "`:train_gpu`"
    options = line["settings"]
    size = (
        f"{options['workers']} workers x {options['envs_per_worker']} in {options.get('groups_per_worker', 2)} groups, "
        f"batch {options['batch_size']:,}"
    )
    measured = f"**{number(line['value'])} steps/s** (untrained policy, first seconds)"
    beside = f"learner and inference alone, in turns: {number(line['baseline']['value'])}"
    return f"{what}, {size}", measured, beside, "`:train_gpu`"


def _settled(line: Line | None) -> tuple[str, str, str, str]:
    what, command = "training of NetHack with the intrinsic reward, its last third", "`train_agent.py`"
    missing = _missing(line, "settled_steps_per_second")
    if missing or line is None:
        return what, missing or "", "", command
    measured = f"**{number(line['settled_steps_per_second'])} steps/s**"
    if line.get("settled_turns_per_second"):
        measured += (
            f", {number(line['settled_turns_per_second'])} game turns/s ({line['turns_per_step']:.2f} a step)"
        )
    after = f"{line['seconds']:.0f} s and {number(line['steps'])} steps; "
    start = line.get("first_steps_per_second")
    beside = after + ("" if start is None else f"at its start {number(start)} steps/s; ")
    return what, measured, beside + f"first row of metrics after {line['first_row_seconds']:.0f} s", command


def _alone(lines: dict[str, Line], name: str, key: str, unit: str) -> tuple[str, str, str, str]:
    """The row of learner or inference alone; where its benchmark had no time, what the training's benchmark says of it."""
    line, what, command = lines.get(name), f"{name} alone", f"`:{name}_gpu`"
    missing = _missing(line, "value")
    if missing or line is None:
        rate = lines.get("train", {}).get(f"{name}_{key}")
        return what, missing or "", "" if rate is None else f"in `:train_gpu`: {number(rate)} {unit}", command
    rate = line[key]
    rate = rate[max(rate, key=int)] if isinstance(rate, dict) else rate
    rows = f", {line['rows']:,} rows a call" if "rows" in line else ""
    measured = f"{number(rate)} {unit}, {line['value'] / 1e12:.3g} TFLOP/s"
    beside = f"{line['baseline']['what']}: {line['baseline']['value'] / 1e12:.3g} TFLOP/s"
    return what + rows, measured, beside, command


def _host(line: Line | None) -> tuple[str, str, str, str]:
    what, command = "the host's work of a call of inference", "`:inference_host`"
    missing = _missing(line, "value")
    if missing or line is None:
        return what, missing or "", "", command
    rows = f", {line['rows']} rows" if "rows" in line else ""
    return (
        what + rows,
        f"{number(line['value'])} {line['unit']}",
        f"{line['baseline']['what']}: {number(line['baseline']['value'])}",
        command,
    )


def _language(name: str, lines: dict[str, Line]) -> tuple[str, str, str, str]:
    what, command = LANGUAGE[name], f"`:{name}_gpu`"
    cold, warm = lines.get(f"{name}_cold"), lines.get(name)
    parts = []
    for line, state in ((cold, "cold"), (warm, "with compiled programs kept")):
        missing = _missing(line, "first_step_seconds")
        parts.append(
            f"{missing} ({state})"
            if missing or line is None
            else f"{line['first_step_seconds']:.0f} s {state}"
        )
    beside = f"from start to first step: {', '.join(parts)}"
    missing = _missing(warm, "value")
    if missing or warm is None:
        return what, missing or "", beside, command
    measured = f"**{number(warm['value'])} {warm['unit']}**"
    if warm.get("peak_share") is not None:
        measured += f", {warm['peak_share']:.2f} of {warm['settings']['dtype']} matrix products"
    return what, measured, beside, command


def _glam(line: Line | None) -> tuple[str, str, str, str]:
    what, command = "GLAM's quick run, a minute", "`train_language_agent.py:quickstart`"
    missing = _missing(line, "settled_steps_per_second")
    if missing or line is None:
        return what, missing or "", "", command
    beside = f"first row of metrics after {line['first_row_seconds']:.0f} s"
    return what, f"{number(line['settled_steps_per_second'])} actions/s", beside, command


def _tests(line: Line | None) -> tuple[str, str, str, str]:
    what, command = "tests of formulas, networks and golden numbers", "`pytest --numeric --all`"
    missing = _missing(line, "tests")
    if missing or line is None:
        return what, missing or "", "", command
    counts = line["tests"]
    late = f"; {line['error'].split(':')[0]}" if "error" in line else ""
    bad = counts["failed"] + counts["error"]
    return what, f"{counts['passed']} passed, {bad} failed{late}", f"{line['seconds']:.0f} s", command


def main() -> None:
    """Writes the table of the file that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", type=Path, help="figures.jsonl of launch/gpu_figures.sh")
    parser.add_argument("page", type=Path, nargs="?", default=PAGE)
    given = parser.parse_args()
    page = given.page.read_text(encoding="utf-8")
    given.page.write_text(replaced(page, table(read(given.figures))), encoding="utf-8")
    print(f"written: {given.page}")


if __name__ == "__main__":
    main()
