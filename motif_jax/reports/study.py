"""The results of a study's runs: a line for each run in a file, and tables with intervals of these lines.

Every run plays the same games, so a method's numbers are [runs, games]. Their interquartile mean (of rare events the mean) has
rliable's stratified bootstrap interval (Agarwal et al. 2021), each run a stratum of games: it speaks of these trainings. The
interval of a difference of methods draws whole runs, the same seeds for both sides where they share some, then the games, the
same for both sides.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.datasets.verdicts import YES
from motif_jax.labels.lexicon import Lexicon, LexiconJudge
from motif_jax.reports import evaluation_files, messages
from motif_jax.reports.claims import GATHERED, Claim, gathered
from motif_jax.reports.statistics import (
    Estimate,
    interquartile_mean,
    percentile_interval,
    repeatable_rliable,
)
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_text, naming, read_json_lines, regular_file
from motif_jax.support.locks import wait_for_lock

BEGIN, END = "<!-- study -->", "<!-- /study -->"
# Of a game: what the annotator says of all that was met, and what else tells how it went.
MEASURES = {
    "judged": "judged",
    "score": "score",
    "dlvl": "depth",
    "scout": "map seen",
    "kills": "kills",
    "gold": "gold",
    GATHERED: "gold gathered",
    "success": "success",
    "through_door": "through the door",
}
# Rare events, absent from the middle half of games: reported by the mean.
MEANS = ("dlvl", "success", "through_door", GATHERED)
# Default columns of tables.
USUAL = ("judged", "score", "dlvl", "scout")
# Taken from the training's last row of metrics, where present.
FIGURES = (
    "reward/labels",
    "reward/texts_met",
    "reward/training_steps",
    "reward/steps_labelled_share",
    "annotator/questions",
)
_COUNT_EXPONENT = 3


class Yardstick(NamedTuple):
    """Whose labels games are judged by: a goal, and the digest that the lexicon's labels for it are known by."""

    goal: str
    lexicon: str


# Lines of earlier versions lack it: they were judged by the built-in lexicon of that time.
_UNSAID = Yardstick("defaultgoal", "8d242f65191abc34137bda6badb62686")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The lines of runs that are there. Raises UserError: a line is damaged."""
    rows = list(read_json_lines(path, ("seed",)))
    kinds = {"method": str, "flags": str, "games": dict, "figures": dict}
    for number, row in enumerate(rows, start=1):
        for key, kind in kinds.items():
            if not isinstance(row.get(key), kind):
                what = "text" if kind is str else "object"
                raise UserError(
                    f"{path} is damaged in line {number} (no {what} as {key}): take out that line"
                )
    return rows


def find(
    rows: Sequence[Mapping[str, Any]], method: str, seed: int, flags: str, by: Yardstick = _UNSAID
) -> Mapping[str, Any] | None:
    """The line of a run with these flags whose games were judged by `by`, None if there is none."""
    wanted = (method, seed, flags, by)
    same = (row for row in rows if (row["method"], row["seed"], row["flags"], yardstick(row)) == wanted)
    return next(same, None)


def yardstick(row: Mapping[str, Any]) -> Yardstick:
    """What the games of a line were judged by."""
    return Yardstick(*(row.get(key, unsaid) for key, unsaid in _UNSAID._asdict().items()))


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Adds a line, safe beside other studies that do; removes a torn last line first.

    Raises:
      UserError: a line is damaged, or the file system has no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), open(path, "a+b", opener=regular_file) as file:
        wait_for_lock(file)
        read_rows(path)
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(row, sort_keys=True).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def measure(run: Path, games: Path, lexicon: Lexicon, goal: str) -> dict[str, Any]:
    """The stored results of a run: each game's numbers, in their order, and figures of the training.

    Args:
      run: run folder of the training.
      games: folder of its evaluation.
      lexicon, goal: judge the games: a step is paid 1 / N^3 where its message, shown for the Nth time in the game, is a yes.

    Raises:
      UserError: `games` is no finished evaluation, or a file is damaged.
    """
    judge = LexiconJudge(lexicon, goal)
    rows = evaluation_files.read_evaluation(games)["rows"]
    there = [name for name in MEASURES if all(row.get(name) is not None for row in rows)]
    kept = {name: [_short(row[name]) for row in rows] for name in there}
    if all("messages" in row for row in rows):  # of tasks that have any
        kept["judged"] = [_short(_judged(judge, messages.unpack(row["messages"]))) for row in rows]
        kept[GATHERED] = [_short(gathered(row["messages"])) for row in rows]
    last = {}
    for row in read_json_lines(run / "metrics.jsonl"):
        last.update(row)
    figures = {name: _short(last[name]) for name in FIGURES if name in last}
    return {"games": kept, "figures": figures, "steps": last.get("step")}


def _judged(judge: LexiconJudge, met: Sequence[messages.MessageTally]) -> float:
    """The sum over a game's steps of the verdict on their message by its count so far to the third power."""
    helpful = (tally.count for tally in met if judge.answer(tally.text).label == YES)
    return float(sum((np.arange(1, count + 1.0) ** -_COUNT_EXPONENT).sum() for count in helpful))


def _short(value: float) -> float | int:
    return int(value) if float(value).is_integer() else round(float(value), 4)


def require_same_games(rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> None:
    """Raises UserError where the lines of `methods` hold different numbers of games, which cannot stand in one table."""
    counts = [
        (f"{row['method']} of seed {row['seed']}", len(values))
        for row in rows
        if row["method"] in methods
        for values in row["games"].values()
    ]
    for name, count in counts[1:]:
        if count != counts[0][1]:
            raise UserError(
                f"config.rows: the line of {counts[0][0]} is of {counts[0][1]} games, and that of {name} of {count}: take out the "
                "line that is wrong, and its run is made again"
            )


class MeasureCell(NamedTuple):
    """A measure of a method: its interquartile mean (of MEANS the mean), and by how much it lies above the first method's, None for itself."""

    value: Estimate
    above: Estimate | None


def table(
    rows: Sequence[Mapping[str, Any]],
    methods: Sequence[str],
    resamples: int,
    measures: Sequence[str] = USUAL,
) -> dict[str, dict[str, MeasureCell]]:
    """Method -> measure -> cell, for methods that have runs and measures that all of these have.

    Methods are compared with the first of `methods` by the seeds that both have, or by all runs where they share none.
    """
    runs = {name: {row["seed"]: row["games"] for row in rows if row["method"] == name} for name in methods}
    runs = {name: of for name, of in runs.items() if of}
    found: dict[str, dict[str, MeasureCell]] = {name: {} for name in runs}
    for key in _shared(runs, measures):
        scores = {name: _scores(of, sorted(of), key) for name, of in runs.items()}
        values = _averages(scores, resamples, key in MEANS)
        for name in runs:
            above = None
            if name != methods[0] and methods[0] in runs:
                own, others = _compared(runs[name], runs[methods[0]])
                sides = _scores(runs[name], own, key), _scores(runs[methods[0]], others, key)
                above = _above(*sides, resamples, own == others, key in MEANS)
            found[name][key] = MeasureCell(values[name], above)
    return found


def _scores(runs: Mapping[int, Mapping[str, Any]], seeds: Sequence[int], key: str) -> np.ndarray:
    return np.array([runs[seed][key] for seed in seeds])


def _compared(own: Iterable[int], others: Iterable[int]) -> tuple[list[int], list[int]]:
    both = sorted(set(own) & set(others))
    return (both, both) if both else (sorted(own), sorted(others))


def _shared(runs: Mapping[str, Mapping[int, Mapping[str, Any]]], measures: Sequence[str]) -> list[str]:
    return [key for key in measures if all(key in games for of in runs.values() for games in of.values())]


def _averages(scores: Mapping[str, np.ndarray], resamples: int, means: bool) -> dict[str, Estimate]:
    """Interquartile means, or means, of [runs, games] each, the games drawn within each run by rliable; repeatable."""
    from rliable import library, metrics

    def statistic(values: np.ndarray) -> np.ndarray:
        return np.array([(metrics.aggregate_mean if means else metrics.aggregate_iqm)(values)])

    with repeatable_rliable():
        points, bounds = library.get_interval_estimates(
            {name: of.T for name, of in scores.items()}, statistic, reps=resamples
        )
    return {
        name: Estimate(float(points[name][0]), *(float(bound) for bound in bounds[name][:, 0]))
        for name in scores
    }


def _above(first: np.ndarray, other: np.ndarray, resamples: int, paired: bool, means: bool) -> Estimate:
    generator = np.random.default_rng(0)

    def mean(values: np.ndarray) -> float:
        return float((np.mean if means else interquartile_mean)(values.reshape(-1)))

    drawn = np.empty(resamples)
    for place in range(resamples):
        games = generator.integers(first.shape[1], size=first.shape[1])
        runs = generator.integers(len(first), size=len(first))
        others = runs if paired else generator.integers(len(other), size=len(other))
        drawn[place] = mean(first[runs][:, games]) - mean(other[others][:, games])
    return Estimate(mean(first) - mean(other), *percentile_interval(drawn))


def tables(
    rows: Sequence[Mapping[str, Any]],
    methods: Mapping[str, Sequence[str]],
    seeds: int,
    resamples: int,
    measures: Sequence[str] = USUAL,
) -> str:
    """Markdown: a table for each title of `methods`, and what its intervals carry.

    Args:
      methods: title -> the methods, the first of which the others are compared with.
      seeds: that the study has in all.
      measures: the columns, of those that all runs of a table have.
    """
    return "\n\n".join(
        _table(rows, title, names, seeds, resamples, measures) for title, names in methods.items()
    )


def _table(
    rows: Sequence[Mapping[str, Any]],
    title: str,
    methods: Sequence[str],
    seeds: int,
    resamples: int,
    measures: Sequence[str],
) -> str:
    found = table(rows, methods, resamples, measures)
    heading = title.replace("_", " ")
    if not found:
        return f"**{heading}**: no run is done yet."
    shown = list(next(iter(found.values())))
    titles = [heading, "runs", *(MEASURES[key] for key in shown)]
    asks = any("annotator/questions" in row["figures"] for row in rows if row["method"] in found)
    titles += ["asked / met"] if asks else []
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for name, cells in found.items():
        own = [row for row in rows if row["method"] == name]
        numbers = [_said(cells[key]) for key in shown] + ([_asked(own)] if asks else [])
        lines.append(f"| {' | '.join([name.replace('_', ' '), str(len(own)), *numbers])} |")
    absent = [name.replace("_", " ") for name in methods if name not in found]
    notes = [f"Not run yet: {', '.join(absent)}."] if absent else []
    return "\n".join([*lines, "", *_explained(rows, found, methods[0], seeds), *notes])


def _said(cell: MeasureCell) -> str:
    value, sign = cell.value, cell.above.sign if cell.above is not None else 0
    return (
        f"{_number(value.value)} [{_number(value.low)}, {_number(value.high)}]"
        + {1: " ▲", -1: " ▼", 0: ""}[sign]
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _asked(rows: Sequence[Mapping[str, Any]]) -> str:
    shares = [
        row["figures"]["annotator/questions"] / row["figures"]["reward/texts_met"]
        for row in rows
        if row["figures"].get("reward/texts_met") and "annotator/questions" in row["figures"]
    ]
    return f"{np.mean(shares):.2f}" if shares else "–"


def _explained(
    rows: Sequence[Mapping[str, Any]], found: Mapping[str, Mapping[str, MeasureCell]], first: str, seeds: int
) -> list[str]:
    if first not in found or len(found) == 1:
        return []
    runs = {name: {row["seed"] for row in rows if row["method"] == name} for name in found}
    fewest = min(min(map(len, _compared(runs[name], runs[first]))) for name in found)
    drawn = "runs and games" if fewest > 1 else "games alone (one run of some: other seeds may differ)"
    of = "" if fewest >= seeds else f" {fewest} of {seeds} seeds are done for each."
    name = first.replace("_", " ")
    return [f"▲, ▼: above, below {name} (95 % interval of the paired difference over {drawn}).{of}", ""]


def _difference(estimate: Estimate) -> str:
    return f"{_sign(estimate.value)} [{_sign(estimate.low)}, {_sign(estimate.high)}]"


def _sign(value: float) -> str:
    return ("−" if value < 0 else "+") + _number(abs(value))


def claims(
    rows: Sequence[Mapping[str, Any]], stated: Sequence[Claim], resamples: int
) -> tuple[str, list[Claim]]:
    """Markdown with a line for each claim, and the claims that fail; a claim without lines of its runs is neither."""
    lines, missed = ["Claims (95 % intervals of the paired differences):", ""], []
    for claim in stated:
        more, less = (
            {row["seed"]: row["games"] for row in rows if row["method"] == name}
            for name in (claim.more, claim.less)
        )
        if not (more and less):
            lines.append(f"* {claim}: not run yet.")
            continue
        own, others = _compared(more, less)
        sides = _scores(more, own, claim.measure), _scores(less, others, claim.measure)
        gap = _above(*sides, resamples, own == others, claim.measure in MEANS)
        holds = gap.low > claim.margin
        missed += [] if holds else [claim]
        verdict = "holds" if holds else "does not hold"
        chance = f"P(improvement) {_improvement(*sides):.2g}"
        lines.append(f"* {claim}: **{verdict}**, {_difference(gap)}; {chance}.")
    return "\n".join(lines), missed


def _improvement(first: np.ndarray, other: np.ndarray) -> float:
    from rliable import metrics

    return float(metrics.probability_of_improvement(first.mean(1)[:, None], other.mean(1)[:, None]))


def check_page(path: Path) -> None:
    """Raises UserError for a page that is not there, or has no place for the tables."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UserError(
            f"config.page={path}: must be a file with a line {BEGIN} and, behind it, a line {END}; or empty"
        )


def write_page(path: Path, text: str) -> None:
    """Puts `text` between the marks of the page."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    atomic_write_text(path, f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
