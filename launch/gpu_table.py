"""Writes the table of a GPU's figures into docs/performance.md, from what launch/gpu_figures.sh has
measured.

    python launch/gpu_table.py FIGURES.jsonl [PAGE]

The table between two marks in the page is replaced. If an item was measured several times, its last
line without an error counts. An item that did not end in its time is listed as such. Files of two
calls are put together by `cat`, where both were on a machine of one kind.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from gpu_logs import json_lines

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BEGIN = "<!-- launch/gpu_table.py: begin -->"
END = "<!-- launch/gpu_table.py: end -->"
LANGUAGE = {
    "language_update": "PPO's update, Flan-T5-large",
    "score": "scores of candidates, Flan-T5-large",
    "generate": "greedy text, GPT-2 medium",
    "text_train": "ILQL's gradient, GPT-2 small",
}
TRAININGS = {
    "train": "training, task's reward",
    "train_two_cores": "training, task's reward, two cores left to the other threads",
    "train_two_groups": "training, task's reward",
    "train_reward": "training with the intrinsic reward",
    "train_laptop": "training with `laptop`'s network, task's reward",
}
# What makes two machines of one kind.
KIND = ("gpu", "processor", "cores", "jax", "python")
Line = dict[str, Any]


class Row(NamedTuple):
    """A row of the table."""

    title: str
    measured: str
    comparison: str
    command: str


def read(path: Path) -> dict[str, Line]:
    """The line of each item by its name.

    Raises ValueError where no machine is named, or several kinds are: the table has one.
    """
    lines: dict[str, Line] = {}
    all_lines = json_lines(path)
    kinds = {tuple(line[name] for name in KIND) for line in all_lines if line["item"] == "machine"}
    if len(kinds) != 1:
        raise ValueError(f"{path} has the figures of {len(kinds)} kinds of machines in place of 1")
    for line in all_lines:
        earlier = lines.get(line["item"])
        # A line with an error does not take the place of one without.
        if earlier is None or "error" in earlier or "error" not in line:
            lines[line["item"]] = line
    return lines


def table(lines: dict[str, Line]) -> str:
    """The table in markdown, with the machine above it."""
    machine = lines["machine"]
    head = (
        f"**Machine:** {machine['gpu'].removeprefix('GPU 0: ')}, {machine['cores']} cores of {machine['processor']}, jax {machine['jax']}, "
        f"Python {machine['python']}, {machine['date']}. All figures are of `bash launch/gpu_figures.sh`."
    )
    rows = [
        _games(lines.get("games")),
        *(_training(lines, name) for name in TRAININGS),
        _settled(lines.get("nethack")),
        _alone(lines, "learner", "steps_per_second", "steps/s"),
        _alone(lines, "inference", "rows_per_second", "rows/s"),
        _host(lines.get("inference_host")),
        *(_language(name, lines) for name in LANGUAGE),
        _whole_step(lines.get("text_train_step")),
        _beside(
            lines.get("attention"), "attention with its gradient, Flan-T5-large", "`:attention_gpu`"
        ),
        _glam(lines.get("glam")),
        _tests(lines.get("numeric_tests")),
    ]
    titles = "| what | measured | beside it | command |\n|---|---|---|---|"
    return "\n".join([head, "", titles, *("| " + " | ".join(row) + " |" for row in rows)])


def replaced(page: str, new_table: str) -> str:
    """The page with `new_table` between its marks. Raises ValueError: it has no marks."""
    if BEGIN not in page or END not in page:
        raise ValueError(f"the page lacks the lines {BEGIN} and {END}")
    start = page.index(BEGIN) + len(BEGIN)
    stop = page.index(END)
    return f"{page[:start]}\n{new_table}\n{page[stop:]}"


def number(value: float) -> str:
    """A number with three digits, or whole and with its thousands apart."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} million"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _missing(line: Line | None, key: str) -> str:
    """Why a line has no figure; '' where it has."""
    if line is None:
        return "not measured"
    if line.get(key) is None:
        return str(line.get("error", "not measured")).split(":")[0]
    return ""


def _games(line: Line | None) -> Row:
    title = "games alone, random keys"
    missing = _missing(line, "steps_per_second_by_the_clock")
    if missing or line is None:
        return Row(title, missing, "", "`:actors`")
    options = line["settings"]
    title += f", {options['workers']} workers x {options['envs_per_worker']}"
    comparison = f"a core's processor time: {number(line['value'])} steps/s"
    return Row(
        title, f"{number(line['steps_per_second_by_the_clock'])} steps/s", comparison, "`:actors`"
    )


def _training(lines: dict[str, Line], name: str) -> Row:
    line = lines.get(name)
    title = TRAININGS[name]
    missing = _missing(line, "value")
    if missing or line is None:
        return Row(title, missing, "", "`:train_gpu`")
    options = line["settings"]
    size = (
        f"{options['workers']} workers x {options['envs_per_worker']} in {options.get('groups_per_worker', 2)} groups, "
        f"batch {options['batch_size']:,}"
    )
    measured = f"**{number(line['value'])} steps/s** (untrained policy, first seconds)"
    comparisons = []
    games = lines.get("games", {}).get("steps_per_second_by_the_clock")
    if games:
        comparisons.append(f"{line['value'] / games:.2f} of the games alone")
    if "baseline" in line:
        comparisons.append(
            f"learner and inference alone, in turns: {number(line['baseline']['value'])}"
        )
    if "error" in line:
        comparisons.append(line["error"].split(":")[0])
    return Row(f"{title}, {size}", measured, "; ".join(comparisons), "`:train_gpu`")


def _settled(line: Line | None) -> Row:
    title = "training of NetHack with the intrinsic reward, its last third"
    command = "`train_agent.py`"
    missing = _missing(line, "settled_steps_per_second")
    if missing or line is None:
        return Row(title, missing, "", command)
    measured = f"**{number(line['settled_steps_per_second'])} steps/s**"
    if line.get("settled_turns_per_second"):
        turns = number(line["settled_turns_per_second"])
        measured += f", {turns} game turns/s ({line['turns_per_step']:.2f} a step)"
    comparison = f"{line['seconds']:.0f} s and {number(line['steps'])} steps; "
    if line.get("first_steps_per_second") is not None:
        comparison += f"at its start {number(line['first_steps_per_second'])} steps/s; "
    comparison += f"first row of metrics after {line['first_row_seconds']:.0f} s"
    return Row(title, measured, comparison, command)


def _alone(lines: dict[str, Line], name: str, key: str, unit: str) -> Row:
    """The row of learner or inference alone; where its benchmark had no time, what the training's
    benchmark says of it.
    """
    line = lines.get(name)
    title = f"{name} alone"
    command = f"`:{name}_gpu`"
    missing = _missing(line, "value")
    if missing or line is None:
        rate_in_training = lines.get("train", {}).get(f"{name}_{key}")
        comparison = (
            ""
            if rate_in_training is None
            else f"in `:train_gpu`: {number(rate_in_training)} {unit}"
        )
        return Row(title, missing, comparison, command)
    rate = line[key]
    if isinstance(rate, dict):
        # By the number of devices: that of the most.
        rate = rate[max(rate, key=int)]
    if "rows" in line:
        title += f", {line['rows']:,} rows a call"
    measured = f"{number(rate)} {unit}, {line['value'] / 1e12:.3g} TFLOP/s"
    comparison = f"{line['baseline']['what']}: {line['baseline']['value'] / 1e12:.3g} TFLOP/s"
    return Row(title, measured, comparison, command)


def _host(line: Line | None) -> Row:
    title = "the host's work of a call of inference"
    if line is not None and "rows" in line:
        title += f", {line['rows']} rows"
    return _beside(line, title, "`:inference_host`")


def _beside(line: Line | None, title: str, command: str) -> Row:
    """The row of a benchmark's value beside its baseline."""
    missing = _missing(line, "value")
    if missing or line is None:
        return Row(title, missing, "", command)
    measured = f"{number(line['value'])} {line['unit']}"
    # The line of an item that was late may end before it.
    baseline = line.get("baseline", {})
    if baseline.get("value") is None:
        return Row(title, measured, str(line.get("error", "")).split(":")[0], command)
    return Row(title, measured, f"{baseline['what']}: {number(baseline['value'])}", command)


def _language(name: str, lines: dict[str, Line]) -> Row:
    title = LANGUAGE[name]
    command = f"`:{name}_gpu`"
    warm = lines.get(name)
    starts = [
        _start(lines.get(f"{name}_cold"), "cold"),
        _start(warm, _warm_state(warm)),
    ]
    comparison = f"from start to first step: {', '.join(starts)}"
    missing = _missing(warm, "value")
    if missing or warm is None:
        return Row(title, missing, comparison, command)
    measured = f"**{number(warm['value'])} {warm['unit']}**"
    if warm.get("peak_share") is not None:
        measured += f", {warm['peak_share']:.2f} of {warm['settings']['dtype']} matrix products"
    return Row(title, measured, comparison, command)


def _whole_step(line: Line | None) -> Row:
    title = "ILQL's training step, GPT-2 small"
    command = "`:text_train_gpu --config.options.step=run`"
    missing = _missing(line, "value")
    if missing or line is None:
        return Row(title, missing, "", command)
    step = line.get("step", {})
    comparison = f"compiled in {step['compile_seconds']:.0f} s" if step else ""
    missing = _missing({**line, **step}, "tokens_per_second")
    if missing:
        return Row(title, missing, comparison, command)
    share = f"{step['peak_share']:.2f} of {line['settings']['dtype']} matrix products"
    return Row(
        title, f"**{number(step['tokens_per_second'])} tokens/s**, {share}", comparison, command
    )


def _warm_state(line: Line | None) -> str:
    programs = None if line is None else line.get("reused_programs")
    return (
        "with compiled programs kept"
        if programs is None
        else f"with {programs} compiled programs from disk"
    )


def _start(line: Line | None, state: str) -> str:
    missing = _missing(line, "first_step_seconds")
    if missing or line is None:
        return f"{missing} ({state})"
    return f"{line['first_step_seconds']:.0f} s {state}"


def _glam(line: Line | None) -> Row:
    title = "GLAM's quick run, two minutes"
    command = "`train_language_agent.py:quickstart`"
    missing = _missing(line, "settled_steps_per_second")
    if missing or line is None:
        return Row(title, missing, "", command)
    comparison = f"first row of metrics after {line['first_row_seconds']:.0f} s"
    return Row(title, f"{number(line['settled_steps_per_second'])} actions/s", comparison, command)


def _tests(line: Line | None) -> Row:
    title = "tests of formulas, networks and golden numbers"
    command = "`pytest --numeric --all`"
    missing = _missing(line, "tests")
    if missing or line is None:
        return Row(title, missing, "", command)
    counts = line["tests"]
    failed = counts["failed"] + counts["error"]
    measured = f"{counts['passed']} passed, {failed} failed"
    if "error" in line:
        measured += f"; {line['error'].split(':')[0]}"
    return Row(title, measured, f"{line['seconds']:.0f} s", command)


def main() -> None:
    """Writes the table of the file that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", type=Path, help="figures.jsonl of launch/gpu_figures.sh")
    parser.add_argument("page", type=Path, nargs="?", default=PAGE, help="the page that is written")
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    try:
        lines = read(options.figures)
        new_page = replaced(page, table(lines))
    except ValueError as error:
        parser.error(str(error))
    options.page.write_text(new_page, encoding="utf-8")
    print(f"written: {options.page}")


if __name__ == "__main__":
    main()
