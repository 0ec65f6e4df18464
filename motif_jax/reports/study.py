"""The runs of a study: the numbers of their games, tables and claims with intervals, and the page.

Every run plays the same games, so a method's numbers are [runs, games]. Their interquartile mean
(the mean for rare events and for what is 0 or 1) has rliable's stratified bootstrap interval
(Agarwal et al. 2021) with a run as a stratum: it describes these trainings only. The interval of a
difference draws whole runs, then games: both sides the same games, and the same seeds if they share
some. Of a rate the bootstrap is too narrow near 0 and 1: Wilson's interval stands where it reaches
them or has no width, and the interval of a difference has Newcombe's in it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import finite, naming, regular_file
from motif_jax.core.locks import lock
from motif_jax.core.metric_files import Curve
from motif_jax.core.verdicts import YES
from motif_jax.display import html, measures, page
from motif_jax.display.charts import Plot, Series
from motif_jax.display.page import Section, Table
from motif_jax.display.statistics import (
    Estimate,
    interquartile_mean,
    percentile_interval,
    rate_difference,
    repeatable_rliable,
    wilson,
)
from motif_jax.motif.annotation.lexicon import Lexicon, LexiconJudge, sentences
from motif_jax.play import messages
from motif_jax.reports.curves import (
    LEAST,
    RESAMPLES,
    Learned,
    efficiency_section,
    learning_curve,
)
from motif_jax.reports.probe_report import Probes, heatmap
from motif_jax.reports.run_data import provenance_section
from motif_jax.reports.study_config import StudyConfig

PAGE = "study.html"
# By the annotator's goal: how much of what a game said it calls helpful.
JUDGED = "judged"
# Gold that the hero picked up outside vaults, by the messages.
GATHERED = "gathered"
_TAKEN = re.compile(r"(?:\$ - |You (?:find|collect|gain|take) )(an?|\d+) gold")
# A vault's heaps have 51 pieces or more, and no other heap of the first levels does. One vault
# outweighs hundreds of games.
_LARGEST_HEAP = 50
# Reported by the mean: rare events, which the middle half of games lacks. So is whatever is 0 or 1.
MEANS = ("dlvl", "success", "through_door", "achievements", GATHERED)
# A minus stands between blanks: names of methods may have one.
_PLAIN_CLAIM = re.compile(r"\s*(?P<more>.+?)\s*>\s*(?P<less>.+?)\s*:\s*(?P<measure>[^\s:]+)\s*")
_CLAIM = re.compile(
    r"\s*(?P<more>.+?)\s*>\s*(?P<less>.+?)(?:(?P<sign>\s*\+|\s-\s)\s*(?P<margin>\d+(?:\.\d+)?))?\s*:\s*(?P<measure>[^\s:]+)\s*"
)
# With fewer values the interquartile mean equals the mean.
_IQM_VALUES = 4
# Seed, or the folder of a run that a study did not make, -> measure -> the numbers of its games.
Runs = Mapping[Any, Mapping[str, Sequence[float]]]


@dataclass
class StudyRuns:
    """The runs of a study, which it has made or which existed already.

    Attributes:
      tables: title -> method -> run -> measure -> the numbers of its games; a table each.
      games_are_pairs: whether all runs of a table played the same games in the same order, by its
          title.
      methods: the runs by the names of methods that claims use.
      trainings: each with the curves of its episodes' numbers.
      without_curve: a sentence on trainings that have no curve, or ''.
      published: task -> published curves of mean returns.
      probes: the probes of logs of GLAM's published tool, by name.
      provenance: (title, text) of configs and versions.
    """

    tables: dict[str, dict[str, dict[Any, Any]]] = field(default_factory=dict)
    games_are_pairs: dict[str, bool] = field(default_factory=dict)
    methods: Mapping[str, Runs] = field(default_factory=dict)
    trainings: list[Learned] = field(default_factory=list)
    without_curve: str = ""
    published: dict[str, list[Series]] = field(default_factory=dict)
    probes: dict[str, Probes] = field(default_factory=dict)
    provenance: list[tuple[str, str]] = field(default_factory=list)


class StudyPage(NamedTuple):
    """The page: its claims in words, its sections, and whether no claim fails."""

    lines: list[str]
    sections: list[Section]
    claims_hold: bool


def page_of(config: StudyConfig, runs: StudyRuns) -> StudyPage:
    """The page of the runs. Raises UserError: a claim has another form, or an unknown method."""
    keys = checks.listed(config.measures)
    shown = []
    for number, (title, methods) in enumerate(runs.tables.items()):
        pairs = runs.games_are_pairs[title]
        shown.append(method_section(methods, title, keys, config.resamples, pairs, number))
    stated = parsed_claims(config.claims, list(runs.methods))
    pairs = all(runs.games_are_pairs.values())
    lines, claims_hold = claims(runs.methods, stated, config.resamples, pairs)
    if lines:
        items = "".join(f"<li>{escape(line.replace('**', ''))}</li>" for line in lines)
        note = f"95 % intervals of the {_differences(pairs)}s."
        shown.append(Section("Claims", "claims", [f"<ul>{items}</ul>"], note))
    plots = list(_plots(runs, keys))
    if plots:
        shown.append(_curves(plots, runs))
    if runs.trainings:
        shown.append(efficiency_section(runs.trainings, keys))
    if runs.probes:
        shown.append(_probes(runs.probes))
    if runs.provenance:
        shown.append(provenance_section(runs.provenance))
    return StudyPage(lines, shown, claims_hold)


def write(workdir: Path, shown: StudyPage) -> Path:
    """Writes study.html, study.md and plots/ into `workdir`, and returns the page's path."""
    name = workdir.name
    # Many a folder's name says study already.
    title = f"{name[:1].upper()}{name[1:]}" if "study" in name.lower() else f"Study {name}"
    return page.write(workdir, Path(PAGE).stem, title, shown.lines, shown.sections, with_plots=True)


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Appends a line, replacing a torn one; other studies may write, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), open(path, "a+b", opener=regular_file) as file:
        lock(file, path, wait=True)
        file.seek(0)
        end_of_last_line = file.read().rfind(b"\n") + 1
        file.truncate(end_of_last_line)
        file.write(json.dumps(finite(row), allow_nan=False, sort_keys=True).encode() + b"\n")


def measure(
    episodes: Sequence[Mapping[str, Any]], lexicon: Lexicon, goal: str
) -> dict[str, list[float]]:
    """Measure -> the numbers of an evaluation's games in order: every number that all of its
    `episodes` have.

    Of games with messages also `judged`, by the goal of the lexicon, and the gold that was
    gathered.
    """
    judge = LexiconJudge(lexicon, goal)
    rows = [dict(row) for row in sorted(episodes, key=lambda row: row["index"])]
    for row in rows:
        if "messages" in row:  # only tasks with messages
            row[JUDGED] = _helpfulness(judge, row["messages"])
            row[GATHERED] = gathered(row["messages"])
    numbers = [
        {key for key, value in row.items() if isinstance(value, int | float)} for row in rows
    ]
    shared = set.intersection(*numbers) if numbers else set()
    names = measures.in_order(sorted(shared))
    # Of significant digits: an environment's own rewards may be small.
    return {name: [float(f"{float(row[name]):.6g}") for row in rows] for name in names}


def _helpfulness(judge: LexiconJudge, packed: str) -> float:
    """The messages that the judge calls helpful, each 1 / N^3 where the game shows it for the Nth
    time.
    """
    total = 0.0
    for tally in messages.unpack(packed):
        if judge.answer(tally.text).label == YES:
            total += float((np.arange(1, tally.count + 1.0) ** -3).sum())
    return total


def gathered(packed: str) -> int:
    """The gold that the hero picked up outside vaults, by an episode's packed messages."""
    pieces = 0
    for tally in messages.unpack(packed):
        for sentence in sentences(tally.text):
            taken = _TAKEN.match(sentence)
            if taken is None:
                continue
            heap = int(taken[1]) if taken[1].isdigit() else 1
            if heap <= _LARGEST_HEAP:
                pieces += tally.count * heap
    return pieces


def method_section(
    runs: Mapping[str, Runs],
    title: str,
    keys: Sequence[str],
    resamples: int,
    games_are_pairs: bool = True,
    number: int = 0,
) -> Section:
    """The section with the table `number` of the page: a row for each method, in the measures that
    all have. Marks compare with the first one, as `excess` does.
    """
    first = next(iter(runs), "")
    runs = {method: runs_of_method for method, runs_of_method in runs.items() if runs_of_method}
    shared = [key for key in keys if _all_have(runs, key)]
    columns = [_column(runs, first, key, resamples, games_are_pairs) for key in shared]

    header = [title, "runs", *(measures.measure(key).title for key in shared)]
    rows = []
    for method, runs_of_method in runs.items():
        rows.append([method, str(len(runs_of_method)), *(column[method] for column in columns)])
    has_single_run = any(len(runs_of_method) == 1 for runs_of_method in runs.values())
    drawn = "games (some have one run)" if has_single_run else "runs and games"
    difference = _differences(games_are_pairs)
    note = f"▲, ▼: above, below {first} (95 % interval of the {difference} over {drawn})."
    cells = Table(f"table-{number}", header, rows, in_files=True)
    return Section(title, f"methods-{number}", [cells], note)


def _differences(games_are_pairs: bool) -> str:
    return "paired difference" if games_are_pairs else "difference"


def _all_have(runs: Mapping[str, Runs], key: str) -> bool:
    return all(
        key in games for runs_of_method in runs.values() for games in runs_of_method.values()
    )


def is_averaged(runs: Mapping[str, Runs], key: str) -> bool:
    """Whether the mean describes the measure, and not the interquartile mean, which of rare events
    is 0.
    """
    numbers = [games.get(key, ()) for method in runs.values() for games in method.values()]
    return key in MEANS or measures.is_rate(key, np.concatenate([*numbers, ()]))


def _column(
    runs: Mapping[str, Runs], first: str, key: str, resamples: int, games_are_pairs: bool
) -> dict[str, str]:
    """Method -> the cell of the measure `key`, with a mark where it differs from the method
    `first`.
    """
    from rliable import library, metrics

    averaged = is_averaged(runs, key)
    mean = metrics.aggregate_mean if averaged else metrics.aggregate_iqm
    # rliable's scores are [runs, tasks]: here the games are the runs, and the runs are the strata.
    scores = {
        method: np.array([by_seed[seed][key] for seed in sorted(by_seed)]).T
        for method, by_seed in runs.items()
    }
    highest = max((float(numbers.max()) for numbers in scores.values()), default=0.0)
    with repeatable_rliable():
        points, bounds = library.get_interval_estimates(
            scores, lambda x: np.array([mean(x)]), reps=resamples
        )
    cells = {}
    for method, by_seed in runs.items():
        mark = ""
        if first in runs and method != first:
            sign = excess(by_seed, runs[first], key, resamples, averaged, games_are_pairs).sign
            mark = {1: " ▲", -1: " ▼", 0: ""}[sign]
        low, high = map(float, bounds[method][:, 0])
        estimate = Estimate(float(points[method][0]), low, high)
        # The bootstrap is too narrow at the border, and where all games of each run went alike: of
        # what happened it says that it must.
        is_narrow = low <= 0 or high >= 1 or low == high
        if is_narrow and _shows_rate(key, scores[method], averaged, highest):
            estimate = wilson(float(scores[method].mean()), scores[method].size)
        elif len(scores[method]) == 1:
            # Nothing says how games differ.
            estimate = Estimate(estimate.value, math.nan, math.nan)
        cells[method] = measures.format_estimate(estimate) + mark
    return cells


def _shows_rate(key: str, own: np.ndarray, averaged: bool, highest: float) -> bool:
    """Whether the cell of a method's numbers `own` [games, runs] is a rate, in a column whose
    `highest` number may say that 1 is no most.
    """
    is_mean = averaged or np.ptp(own) == 0
    return measures.is_rate(key, own) and bool(is_mean) and (highest <= 1 or not own.any())


def excess(
    runs: Runs,
    other_runs: Runs,
    key: str,
    resamples: int,
    averaged: bool | None = None,
    games_are_pairs: bool = True,
) -> Estimate:
    """The difference of two methods over runs and games; runs of the same seed are pairs.

    Args:
      averaged: it is one of means, else of interquartile means; None: by `is_averaged` of these two
          methods.
      games_are_pairs: all runs played the same games in the same order.
    """
    if averaged is None:
        averaged = is_averaged({"first": runs, "other": other_runs}, key)
    mean = np.mean if averaged else interquartile_mean
    # A seed that one side lacks would decide the difference.
    paired_seeds = sorted(runs.keys() & other_runs.keys())
    first = np.array([runs[seed][key] for seed in paired_seeds or sorted(runs)])
    other = np.array([other_runs[seed][key] for seed in paired_seeds or sorted(other_runs)])

    generator = np.random.default_rng(0)
    drawn = np.empty(resamples)
    for resample in range(resamples):
        # Both sides draw the same games, and the same seeds where they share some.
        games = generator.integers(first.shape[1], size=first.shape[1])
        other_games = games
        if not games_are_pairs:
            other_games = generator.integers(other.shape[1], size=other.shape[1])
        rows = generator.integers(len(first), size=len(first))
        other_rows = rows if paired_seeds else generator.integers(len(other), size=len(other))
        drawn[resample] = mean(first[rows][:, games].ravel()) - mean(
            other[other_rows][:, other_games].ravel()
        )
    value = float(mean(first.ravel()) - mean(other.ravel()))
    low, high = percentile_interval(drawn)
    if averaged and measures.is_rate(key, np.concatenate([first.ravel(), other.ravel()])):
        # The bootstrap knows how runs differ, and Newcombe's interval what games that all went
        # alike leave open.
        paired = bool(paired_seeds) and games_are_pairs
        rates = rate_difference(first.ravel(), other.ravel(), paired)
        return Estimate(value, min(low, rates.low), max(high, rates.high))
    if min(first.size, other.size) == 1:
        # Nothing says how games differ.
        return Estimate(value, math.nan, math.nan)
    return Estimate(value, low, high)


class Claim(NamedTuple):
    """That `more` does more of `measure` than `less`, by more than `margin`; with a negative
    margin, that it does hardly less.
    """

    more: str
    less: str
    measure: str
    margin: float = 0.0

    def __str__(self) -> str:
        return f"{self.more} > {self.other_side}: {self.measure}"

    @property
    def other_side(self) -> str:
        """What `more` is compared with: the other method, and the margin."""
        if not self.margin:
            return self.less
        sign = "+" if self.margin > 0 else "-"
        return f"{self.less} {sign} {abs(self.margin):g}"


def parsed_claims(text: str, methods: Sequence[str]) -> list[Claim]:
    """Reads 'A > B: measure; A > B + 0.3: measure; A > B - 0.1: measure'. Raises UserError: another
    form, or an unknown method.
    """
    claims = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        # The name of a method may end as a margin does: 'lr=1e+3'.
        match = _PLAIN_CLAIM.fullmatch(part)
        if match is None or {match["more"], match["less"]} - set(methods):
            match = _CLAIM.fullmatch(part)
        if match is None or {match["more"], match["less"]} - set(methods):
            raise UserError(
                f"config.claims={part}: must be 'A > B: measure; A > B + NUMBER: measure; A > B - NUMBER: measure; ...' with A and B of "
                f"{', '.join(methods)} (the methods in the tables)"
            )
        claims.append(Claim(match["more"], match["less"], match["measure"], _margin(match)))
    return claims


def _margin(match: re.Match[str]) -> float:
    """The margin of a claim, 0 where it has none."""
    parts = match.groupdict()
    margin = float(parts.get("margin") or 0)
    return -margin if (parts.get("sign") or "").strip() == "-" else margin


def claims(
    runs: Mapping[str, Runs],
    stated: Sequence[Claim],
    resamples: int,
    games_are_pairs: bool = True,
) -> tuple[list[str], bool]:
    """A line of Markdown per claim, and whether none fails; a claim without runs does not fail."""
    lines = []
    all_hold = True
    for claim in stated:
        more = runs[claim.more]
        less = runs[claim.less]
        if not more or not less:
            lines.append(f"{claim}: not run yet.")
            continue
        gap = excess(more, less, claim.measure, resamples, games_are_pairs=games_are_pairs)
        holds = gap.low > claim.margin
        all_hold = all_hold and holds
        verdict = "holds" if holds else "does not hold"
        lines.append(f"{claim}: **{verdict}**, {measures.format_estimate(gap)}.")
    return lines, all_hold


def _plots(runs: StudyRuns, keys: Sequence[str]) -> Iterator[Plot]:
    """A chart for each measure and task, with a line for each method."""
    tasks = dict.fromkeys([*(run.task for run in runs.trainings), *runs.published])
    for task in tasks:
        for key in keys:
            seeds: dict[str, list[Curve]] = {}
            for run in runs.trainings:
                if run.task == task and key in run.curves:
                    seeds.setdefault(run.method, []).append(run.curves[key])
            lines = [
                learning_curve(method, curves, least=LEAST) for method, curves in seeds.items()
            ]
            if key == "return":
                lines += runs.published.get(task, ())
            if lines:
                y_label = measures.with_unit(measures.measure(key))
                yield Plot(task, "environment steps", y_label, lines, file=f"{key}_{task}")


def _curves(plots: Sequence[Plot], runs: StudyRuns) -> Section:
    note = (
        f"Smoothed: finished episodes are averaged over stretches of steps, each so long that every run ended at least {LEAST} in "
        f"it (a fifth of all where a run has fewer than {5 * LEAST}). Lines: interquartile mean over seeds, of fewer than {_IQM_VALUES} the mean. "
        f"Bands: 95 % bootstrap interval over seeds ({RESAMPLES} resamples; none with one seed). Up to the end of the shortest run."
    )
    if runs.published:
        note += " Dashed: published results."
    return Section("Learning curves", "curves", plots, f"{note} {runs.without_curve}".rstrip())


def _probes(probes_of: Mapping[str, Probes]) -> Section:
    note = (
        "What agents of the published tool would do in its fixed situations (distrib.csv). One row per action, one column per update; a stronger "
        "colour is a higher probability. Scores that are not probabilities are turned into them by softmax."
    )
    parts: list[Any] = []
    for name, probes in probes_of.items():
        figures = [
            html.figure(f"{name}, {probe}", heatmap(probes, index))
            for index, probe in enumerate(probes.names)
        ]
        parts.append(html.grid(*figures))
    return Section("Probes", "probes", parts, note)
