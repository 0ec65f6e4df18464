"""The results of a study's runs: a file with a line per run, and tables with intervals made from it.

Every run plays the same games, so a method's numbers are [runs, games]. Their interquartile mean (the mean for rare events)
has rliable's stratified bootstrap interval (Agarwal et al. 2021) with a run as a stratum: it describes these trainings only.
The interval of a difference of methods draws whole runs, then games. Both sides draw the same games, and the same seeds
if they share some.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.datasets.verdicts import YES
from motif_jax.labels.lexicon import Lexicon, LexiconJudge
from motif_jax.reports import evaluation_files, messages
from motif_jax.reports.claims import GATHERED, Claim, gathered
from motif_jax.reports.statistics import Estimate, interquartile_mean, percentile_interval, repeatable_rliable
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_text, naming, read_json_lines, regular_file
from motif_jax.support.locks import lock

BEGIN, END = "<!-- study -->", "<!-- /study -->"
# Measures of a game -> title; "judged" is the sum of the lexicon's verdicts.
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
# Reported by the mean: rare events, which the middle half of games lacks.
MEANS = ("dlvl", "success", "through_door", GATHERED)
# Taken from the training's last row of metrics, where present.
FIGURES = (
    "reward/labels",
    "reward/texts_met",
    "reward/training_steps",
    "reward/steps_labelled_share",
    "annotator/questions",
)
_KINDS = {**dict.fromkeys(("method", "flags", "goal", "lexicon"), str), "games": dict, "figures": dict}
Rows = Sequence[Mapping[str, Any]]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The lines of runs; [] without the file. Raises UserError: a line is damaged."""
    rows = list(read_json_lines(path, ("seed",)))
    for number, row in enumerate(rows, start=1):
        for key, kind in _KINDS.items():
            if not isinstance(row.get(key), kind):
                what = f"{key} is not {'a text' if kind is str else 'an object'}"
                raise UserError(f"{path} is damaged in line {number} ({what}): take out that line")
    return rows


def find(rows: Rows, identity: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The first line with all values of `identity` (method, seed, flags, goal, digest of the lexicon), or None."""
    return next((row for row in rows if all(row[key] == value for key, value in identity.items())), None)


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Appends a line, replacing a torn one; other studies may write, too. Raises UserError: a damaged line, or no locks here."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), open(path, "a+b", opener=regular_file) as file:
        lock(file, path, wait=True)
        read_rows(path)
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(row, sort_keys=True).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def measure(run: Path, games: Path, lexicon: Lexicon, goal: str) -> dict[str, Any]:
    """The stored results of a training `run` and its evaluation `games`: numbers of the games in order, and figures.

    The lexicon judges by the goal: a step whose message is a yes counts 1 / N^3 if the game shows it for the Nth time.
    """
    rows = evaluation_files.read_evaluation(games)["rows"]
    there = [name for name in MEASURES if all(row.get(name) is not None for row in rows)]
    kept = {name: [_short(row[name]) for row in rows] for name in there}
    if all("messages" in row for row in rows):  # only tasks with messages
        judge = LexiconJudge(lexicon, goal)
        kept["judged"] = [_short(_judged(judge, messages.unpack(row["messages"]))) for row in rows]
        kept[GATHERED] = [_short(gathered(row["messages"])) for row in rows]
    last: dict[str, Any] = {}
    for row in read_json_lines(run / "metrics.jsonl"):
        last.update(row)
    figures = {name: _short(last[name]) for name in FIGURES if name in last}
    return {"games": kept, "figures": figures, "steps": last.get("step")}


def _judged(judge: LexiconJudge, met: Sequence[messages.MessageTally]) -> float:
    helpful = (tally.count for tally in met if judge.answer(tally.text).label == YES)
    return float(sum((np.arange(1, count + 1.0) ** -3).sum() for count in helpful))


def _short(value: float) -> float | int:
    return int(value) if float(value).is_integer() else round(float(value), 4)


def require_same_games(rows: Rows, methods: Sequence[str]) -> None:
    """Raises UserError if the lines of `methods` have different numbers of games, which no table can compare."""
    counts = [
        (f"{row['method']} of seed {row['seed']}", len(values))
        for row in rows
        if row["method"] in methods
        for values in row["games"].values()
    ]
    for name, count in counts[1:]:
        if count != counts[0][1]:
            raise UserError(
                f"config.rows: {counts[0][0]} has {counts[0][1]} games and {name} has {count}: take out the wrong line, "
                "then its run is made again"
            )


class MeasureCell(NamedTuple):
    """A method's mean of a measure, and its excess over the first method's, if it is another."""

    value: Estimate
    above: Estimate | None


# Seed -> measure -> the numbers of a run's games.
_Runs = Mapping[int, Mapping[str, Sequence[float]]]


def _runs(rows: Rows, method: str) -> _Runs:
    return {row["seed"]: row["games"] for row in rows if row["method"] == method}


def _scores(runs: _Runs, seeds: Iterable[int], key: str) -> np.ndarray:
    return np.array([runs[seed][key] for seed in sorted(seeds)])


def _compared(own: _Runs, others: _Runs) -> tuple[Collection[int], Collection[int]]:
    """The seeds to compare on both sides: the shared ones, or all if none is shared."""
    both = set(own) & set(others)
    return (both, both) if both else (set(own), set(others))


def table(
    rows: Rows, methods: Sequence[str], resamples: int, measures: Sequence[str]
) -> dict[str, dict[str, MeasureCell]]:
    """Method -> measure -> cell, for methods with runs and measures that all of these have."""
    runs = {name: of for name in methods if (of := _runs(rows, name))}
    first = runs.get(methods[0], {})
    found: dict[str, dict[str, MeasureCell]] = {name: {} for name in runs}
    for key in measures:
        if not all(key in games for of in runs.values() for games in of.values()):
            continue
        values = _averages({name: _scores(of, of, key) for name, of in runs.items()}, resamples, key in MEANS)
        for name, of in runs.items():
            above = _above(of, first, key, resamples) if first and of is not first else None
            found[name][key] = MeasureCell(values[name], above)
    return found


def _averages(scores: Mapping[str, np.ndarray], resamples: int, means: bool) -> dict[str, Estimate]:
    """Interquartile means, or means, of [runs, games]; rliable draws games within each run, repeatably."""
    from rliable import library, metrics

    statistic = metrics.aggregate_mean if means else metrics.aggregate_iqm
    with repeatable_rliable():
        points, bounds = library.get_interval_estimates(
            {name: of.T for name, of in scores.items()}, lambda x: np.array([statistic(x)]), reps=resamples
        )
    return {name: Estimate(float(points[name][0]), *map(float, bounds[name][:, 0])) for name in scores}


def _above(own: _Runs, others: _Runs, key: str, resamples: int) -> Estimate:
    """The difference of two methods over runs and games; runs of the same seed are pairs."""
    generator, (seeds, other_seeds) = np.random.default_rng(0), _compared(own, others)
    first, other = _scores(own, seeds, key), _scores(others, other_seeds, key)

    def mean(values: np.ndarray) -> float:
        return float((np.mean if key in MEANS else interquartile_mean)(values.reshape(-1)))

    drawn = np.empty(resamples)
    for place in range(resamples):
        games = generator.integers(first.shape[1], size=first.shape[1])
        runs = generator.integers(len(first), size=len(first))
        other_runs = runs if seeds is other_seeds else generator.integers(len(other), size=len(other))
        drawn[place] = mean(first[runs][:, games]) - mean(other[other_runs][:, games])
    return Estimate(mean(first) - mean(other), *percentile_interval(drawn))


def table_text(
    rows: Rows, title: str, methods: Sequence[str], seeds: int, resamples: int, measures: Sequence[str]
) -> str:
    """A table in Markdown, and the basis of its intervals; `seeds` is the number of seeds of the whole study."""
    title, found = _name(title), table(rows, methods, resamples, measures)
    if not found:
        return f"**{title}**: no run is done yet."
    of = {name: [row for row in rows if row["method"] == name] for name in found}
    asks = any("annotator/questions" in row["figures"] for own in of.values() for row in own)
    titles = [title, "runs", *(MEASURES[key] for key in next(iter(found.values())))]
    lines = [[*titles, *(["asked / met"] if asks else [])]]
    for name, cells in found.items():
        numbers = [*map(_cell, cells.values()), *([_asked(of[name])] if asks else [])]
        lines.append([_name(name), str(len(of[name])), *numbers])
    head, *shown = (f"| {' | '.join(cells)} |" for cells in lines)
    notes = _note(rows, list(found), methods[0], seeds)
    if absent := [_name(name) for name in methods if name not in found]:
        notes.append(f"Not run yet: {', '.join(absent)}.")
    return "\n".join([head, "|" + "---|" * len(lines[0]), *shown, "", *notes])


def _name(key: str) -> str:
    return key.replace("_", " ")


def _cell(cell: MeasureCell) -> str:
    mark = ("", " ▲", " ▼")[cell.above.sign] if cell.above is not None else ""
    value, low, high = map(_number, (cell.value.value, cell.value.low, cell.value.high))
    return f"{value} [{low}, {high}]{mark}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _asked(rows: Rows) -> str:
    shares = [
        row["figures"]["annotator/questions"] / row["figures"]["reward/texts_met"]
        for row in rows
        if row["figures"].get("reward/texts_met") and "annotator/questions" in row["figures"]
    ]
    return f"{np.mean(shares):.2f}" if shares else "–"


def _note(rows: Rows, found: Sequence[str], first: str, seeds: int) -> list[str]:
    if first not in found or len(found) == 1:
        return []
    fewest = min(len(seeds) for name in found for seeds in _compared(_runs(rows, name), _runs(rows, first)))
    drawn = "runs and games" if fewest > 1 else "games alone (one run of some: other seeds may differ)"
    of = "" if fewest >= seeds else f" {fewest} of {seeds} seeds are done for each."
    what = f"above, below {_name(first)} (95 % interval of the paired difference over {drawn})"
    return [f"▲, ▼: {what}.{of}", ""]


def claims(rows: Rows, stated: Sequence[Claim], resamples: int) -> tuple[str, list[Claim]]:
    """Markdown with a line per claim, and the claims that fail; a claim without runs does not fail."""
    from rliable import metrics

    lines, missed = ["Claims (95 % intervals of the paired differences):", ""], []
    for claim in stated:
        more, less = _runs(rows, claim.more), _runs(rows, claim.less)
        if not (more and less):
            lines.append(f"* {claim}: not run yet.")
            continue
        gap = _above(more, less, claim.measure, resamples)
        sides = zip((more, less), _compared(more, less), strict=True)
        means = [_scores(runs, seeds, claim.measure).mean(1)[:, None] for runs, seeds in sides]
        holds = gap.low > claim.margin
        missed += [] if holds else [claim]
        interval = f"{_signed(gap.value)} [{_signed(gap.low)}, {_signed(gap.high)}]"
        chance = f"P(improvement) {float(metrics.probability_of_improvement(*means)):.2g}"
        lines.append(f"* {claim}: **{'holds' if holds else 'does not hold'}**, {interval}; {chance}.")
    return "\n".join(lines), missed


def _signed(value: float) -> str:
    return ("−" if value < 0 else "+") + _number(abs(value))


def check_page(path: Path) -> None:
    """Raises UserError for a page that is missing or lacks the marks of the tables."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UserError(
            f"config.page={path}: must be a file with a line {BEGIN} and, after it, a line {END}; or empty"
        )


def write_page(path: Path, text: str) -> None:
    """Puts `text` between the marks of the page."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    atomic_write_text(path, f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")
