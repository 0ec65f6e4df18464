"""Writes the table of a GPU's figures into docs/performance.md, from what launch/gpu_figures.sh has
measured.

    python launch/gpu_table.py FIGURES.jsonl [PAGE]

The table between two marks in the page is replaced. If an item was measured several times, its last
line without an error counts. An item that did not end in its time is listed as such.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BEGIN = "<!-- launch/gpu_table.py: begin -->"
END = "<!-- launch/gpu_table.py: end -->"
TRAININGS = {
    "train": "training, task's reward",
    "train_reward": "training with the intrinsic reward",
    "train_settled": "training with the intrinsic reward",
}
LANGUAGE = {
    "language_update": "PPO's update, Flan-T5-large",
    "score": "scores of candidates, Flan-T5-large",
    "generate": "greedy text, GPT-2 medium",
    "text_train": "ILQL's gradient, GPT-2 small",
}
Line = dict[str, Any]


class Row(NamedTuple):
    """A row of the table."""

    title: str
    measured: str
    comparison: str
    command: str


def read(path: Path) -> dict[str, Line]:
    """The line of each item by its name."""
    lines: dict[str, Line] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        earlier = lines.get(line["item"])
        # A line with an error does not take the place of one without.
        if earlier is None or earlier["code"] != 0 or line["code"] == 0:
            lines[line["item"]] = line
    return lines


def machine(lines: dict[str, Line]) -> str:
    """What the figures were measured on, in words.

    Raises ValueError where no line names a device, or lines name different ones: the table has one.
    """
    # The games alone run without jax, and know no device.
    measured = [line for line in lines.values() if "devices" in line.get("machine", {})]
    kinds = {json.dumps(line["machine"], sort_keys=True) for line in measured}
    if len(kinds) != 1:
        raise ValueError(f"the figures are of {len(kinds)} kinds of machines, must be of 1")
    kind = measured[0]["machine"]
    dates = sorted({line["date"] for line in measured})
    return (
        f"**Machine:** {kind['devices'][0]}, {kind['cores']} cores of {kind['processor']}, jax {kind['jax']}, "
        f"{' and '.join(dates)}. All figures are of `bash launch/gpu_figures.sh`."
    )


def table(lines: dict[str, Line]) -> str:
    """The table in markdown, with the machine above it."""
    rows = [
        _games(lines.get("games")),
        *(_training(name, lines.get(name)) for name in TRAININGS),
        _alone("learner", "steps_per_second", "steps/s", lines.get("learner")),
        _alone("inference", "rows_per_second", "rows/s", lines.get("inference")),
        *(_language(name, lines) for name in LANGUAGE),
    ]
    titles = "| what | measured | beside it | command |\n|---|---|---|---|"
    return "\n".join([machine(lines), "", titles, *("| " + " | ".join(row) + " |" for row in rows)])


def replaced(page: str, new_table: str) -> str:
    """The page with `new_table` between its marks. Raises ValueError: it has no marks."""
    start = page.index(BEGIN) + len(BEGIN)
    stop = page.index(END)
    return f"{page[:start]}\n{new_table}\n{page[stop:]}"


def number(value: float) -> str:
    """A number with three digits, or whole and with its thousands apart."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} million"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _error(line: Line | None) -> str:
    """Why an item did not end well; '' where it did."""
    if line is None:
        return "not measured"
    if line["code"] == 0:
        return ""
    # The codes of `timeout`, which ends it or, if it does not obey, kills it.
    is_late = line["code"] in (124, 137)
    return f"not done in {line['limit']} s" if is_late else f"ended with {line['code']}"


def _games(line: Line | None) -> Row:
    title = "games alone, random keys"
    if line is None or "value" not in line:
        return Row(title, _error(line), "", "`:actors`")
    options = line["settings"]
    title += f", {options['workers']} workers x {options['envs_per_worker']}"
    measured = f"{number(line['steps_per_second_by_the_clock'])} steps/s"
    comparison = f"a core's processor time: {number(line['value'])} steps/s"
    return Row(title, measured, comparison, "`:actors`")


def _training(name: str, line: Line | None) -> Row:
    title = TRAININGS[name]
    if line is None or "value" not in line:
        return Row(title, _error(line), "", "`:train_gpu`")
    options = line["settings"]
    size = (
        f"{options['workers']} workers x {options['envs_per_worker']} in {options['groups_per_worker']} groups, "
        f"batch {options['batch_size']:,}"
    )
    warmup = number(options["warmup_seconds"])
    measured = f"**{number(line['value'])} steps/s** after {warmup} s of training"
    comparison = _error(line)
    # Of an item that was late there is what it printed early.
    if "baseline" in line:
        rate = number(line["baseline"]["value"])
        comparison = f"learner and inference alone, in turns: {rate}"
    return Row(f"{title}, {size}", measured, comparison, "`:train_gpu`")


def _alone(name: str, key: str, unit: str, line: Line | None) -> Row:
    """The row of learner or inference alone."""
    title = f"{name} alone"
    command = f"`:{name}_gpu`"
    if line is None or "value" not in line:
        return Row(title, _error(line), "", command)
    rate = line[key]
    if isinstance(rate, dict):
        # By the number of rows: that of the most.
        title += f", {line['rows']:,} rows a call"
        rate = rate[str(line["rows"])]
    measured = f"{number(rate)} {unit}, {line['value'] / 1e12:.3g} TFLOP/s"
    baseline = line["baseline"]
    comparison = f"{baseline['what']}: {baseline['value'] / 1e12:.3g} TFLOP/s"
    return Row(title, measured, comparison, command)


def _language(name: str, lines: dict[str, Line]) -> Row:
    title = LANGUAGE[name]
    command = f"`:{name}_gpu`"
    warm = lines.get(name)
    cold_start = _start(lines.get(f"{name}_cold"))
    comparison = (
        f"from start to first step: {cold_start} cold, {_start(warm)} with compiled programs kept"
    )
    if warm is None or "value" not in warm:
        return Row(title, _error(warm), comparison, command)
    measured = f"**{number(warm['value'])} {warm['unit']}**"
    if "peak_share" in warm:
        measured += f", {warm['peak_share']:.2f} of {warm['settings']['dtype']} matrix products"
    return Row(title, measured, comparison, command)


def _start(line: Line | None) -> str:
    if line is None or "first_step_seconds" not in line:
        return _error(line)
    return f"{line['first_step_seconds']:.0f} s"


def main() -> None:
    """Writes the table of the file that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", type=Path, help="figures.jsonl of launch/gpu_figures.sh")
    parser.add_argument("page", type=Path, nargs="?", default=PAGE, help="the page that is written")
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    options.page.write_text(replaced(page, table(read(options.figures))), encoding="utf-8")
    print(f"written: {options.page}")


if __name__ == "__main__":
    main()
