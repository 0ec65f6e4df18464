"""The results of a study's runs: a line of a file per run, and tables with intervals made from
them.

Every run plays the same games, so a method's numbers are [runs, games]. Their interquartile mean
(the mean for rare events and for what is 0 or 1) has rliable's stratified bootstrap interval
(Agarwal et al. 2021) with a run as a stratum: it describes these trainings only. The interval of a
difference draws whole runs, then games: both sides the same games, and the same seeds if they share
some. Of a rate the bootstrap is too narrow near 0 and 1: Wilson's interval stands where it reaches
them, and the interval of a difference has Newcombe's in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import finite, naming, regular_file
from motif_jax.core.locks import lock
from motif_jax.core.verdicts import YES
from motif_jax.display import measures, text_tables
from motif_jax.display.statistics import (
    Estimate,
    interquartile_mean,
    percentile_interval,
    rate_difference,
    repeatable_rliable,
    wilson,
)
from motif_jax.motif.annotation.lexicon import Lexicon, LexiconJudge
from motif_jax.play import messages
from motif_jax.reports.claims import GATHERED, Claim, gathered

# By the annotator's goal: how much of what a game said it calls helpful.
JUDGED = "judged"
# Reported by the mean: rare events, which the middle half of games lacks. So is whatever is 0 or 1.
MEANS = ("dlvl", "success", "through_door", "achievements", GATHERED)
# Seed, or the folder of a run that a study did not make, -> measure -> the numbers of its games.
Runs = Mapping[Any, Mapping[str, Sequence[float]]]


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


def missing_measure(runs: Mapping[str, Runs], keys: Sequence[str]) -> tuple[str, list[str]] | None:
    """The first of `keys` that no run has, and the measures that the runs do have; None if nothing
    is missing.
    """
    available = dict.fromkeys(
        key for method in runs.values() for games in method.values() for key in games
    )
    for key in keys:
        if available and key not in available:
            return key, list(available)
    return None


class MethodTable(NamedTuple):
    """A table of methods: a row of texts each, compared with the first one as `note` says."""

    header: list[str]
    rows: list[list[str]]
    note: str

    def markdown(self) -> str:
        note = text_tables.markdown_escape(self.note)
        return f"{text_tables.markdown(self.header, self.rows)}\n{note}"


def table(
    runs: Mapping[str, Runs],
    title: str,
    keys: Sequence[str],
    resamples: int,
    games_are_pairs: bool = True,
) -> MethodTable:
    """The table of methods, in the measures that all have; marks compare with the first one, as
    `excess` does.
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
    difference = "paired difference" if games_are_pairs else "difference"
    note = f"▲, ▼: above, below {first} (95 % interval of the {difference} over {drawn})."
    return MethodTable(header, rows, note)


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
        if (low <= 0 or high >= 1) and _shows_rate(key, scores[method], averaged, highest):
            # Its bootstrap is too narrow there: of what happened in all games it says that it must.
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


def claims(
    runs: Mapping[str, Runs],
    stated: Sequence[Claim],
    resamples: int,
    games_are_pairs: bool = True,
) -> tuple[str, bool]:
    """Markdown with a line per claim, and whether none fails; a claim without runs does not fail.

    Raises UserError: both methods have runs, and these lack the measure.
    """
    differences = "paired differences" if games_are_pairs else "differences"
    lines = [f"Claims (95 % intervals of the {differences}):", ""]
    all_hold = True
    for claim in stated:
        more = runs[claim.more]
        less = runs[claim.less]
        if not more or not less:
            lines.append(f"* {claim}: not run yet.")
            continue
        for games in (*more.values(), *less.values()):
            if claim.measure not in games:
                raise UserError(
                    f"config.claims={claim}: its games have {', '.join(games)}, and no {claim.measure}"
                )
        gap = excess(more, less, claim.measure, resamples, games_are_pairs=games_are_pairs)
        holds = gap.low > claim.margin
        all_hold = all_hold and holds
        verdict = "holds" if holds else "does not hold"
        lines.append(f"* {claim}: **{verdict}**, {measures.format_estimate(gap)}.")
    return "\n".join(lines), all_hold
