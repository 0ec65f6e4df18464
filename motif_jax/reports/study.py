"""The results of a study's runs: a line of a file per run, and tables with intervals made from them.

Every run plays the same games, so a method's numbers are [runs, games]. Their interquartile mean (the mean for rare events and
for what is 0 or 1) has rliable's stratified bootstrap interval (Agarwal et al. 2021) with a run as a stratum: it describes these trainings only.
The interval of a difference draws whole runs, then games: both sides the same games, and the same seeds if they share some.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import finite, naming, regular_file
from motif_jax.core.locks import lock
from motif_jax.core.verdicts import YES
from motif_jax.display import measures
from motif_jax.display.statistics import (
    Estimate,
    interquartile_mean,
    percentile_interval,
    repeatable_rliable,
    wilson,
)
from motif_jax.motif.annotation.lexicon import Lexicon, LexiconJudge
from motif_jax.play import evaluation_files, messages
from motif_jax.reports.claims import GATHERED, Claim, gathered

# By the annotator's goal: how much of what a game said it calls helpful.
JUDGED = "judged"
# Reported by the mean: rare events, which the middle half of games lacks. So is whatever is 0 or 1.
MEANS = ("dlvl", "success", "through_door", GATHERED)
# Seed -> measure -> the numbers of a run's games.
Runs = Mapping[int, Mapping[str, Sequence[float]]]


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Appends a line, replacing a torn one; other studies may write, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), open(path, "a+b", opener=regular_file) as file:
        lock(file, path, wait=True)
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(finite(row), allow_nan=False, sort_keys=True).encode() + b"\n")


def measure(games: Path, lexicon: Lexicon, goal: str) -> dict[str, list[float]]:
    """Measure -> the numbers of an evaluation's games in order: every number that all of its episodes have.

    Of games with messages also `judged`, by the goal of the lexicon, and the gold that was gathered.
    """
    judge = LexiconJudge(lexicon, goal)
    rows = sorted(evaluation_files.read_evaluation(games)["rows"], key=lambda row: row["index"])
    for row in rows:
        if "messages" in row:  # only tasks with messages
            tallies = messages.unpack(row["messages"])
            # A yes counts 1 / N^3 if the game shows it for the Nth time.
            helpful = [tally.count for tally in tallies if judge.answer(tally.text).label == YES]
            row[JUDGED] = float(sum((np.arange(1, count + 1.0) ** -3).sum() for count in helpful))
            row[GATHERED] = gathered(row["messages"])
    numbers = [{key for key, value in row.items() if isinstance(value, int | float)} for row in rows]
    shared = set.intersection(*numbers) if numbers else set()
    names = measures.in_order(sorted(shared))
    return {name: [round(float(row[name]), 4) for row in rows] for name in names}


def missing_measure(runs: Mapping[str, Runs], keys: Sequence[str]) -> tuple[str, list[str]] | None:
    """The first of `keys` that no run has, and the measures that the runs do have; None if nothing is missing."""
    known = dict.fromkeys(key for method in runs.values() for games in method.values() for key in games)
    for key in keys:
        if known and key not in known:
            return key, list(known)
    return None


def table(runs: Mapping[str, Runs], title: str, keys: Sequence[str], resamples: int) -> str:
    """A table in Markdown of methods, in the measures that all have; marks compare with the first one."""
    first = next(iter(runs), "")
    runs = {name: of for name, of in runs.items() if of}
    keys = [key for key in keys if all(key in games for of in runs.values() for games in of.values())]
    columns = [_column(runs, first, key, resamples) for key in keys]
    lines = [[title, "runs", *(measures.measure(key).title for key in keys)], ["---"] * (2 + len(keys))]
    lines += [[name, str(len(of)), *(column[name] for column in columns)] for name, of in runs.items()]
    drawn = "games (some have one run)" if 1 in map(len, runs.values()) else "runs and games"
    note = f"▲, ▼: above, below {first} (95 % interval of the paired difference over {drawn})."
    return "\n".join([*(f"| {' | '.join(cells)} |" for cells in lines), "", note])


def is_averaged(runs: Mapping[str, Runs], key: str) -> bool:
    """Whether the mean describes the measure, and not the interquartile mean, which of rare events is 0."""
    values = {value for method in runs.values() for games in method.values() for value in games.get(key, ())}
    return key in MEANS or values <= {0.0, 1.0}


def _column(runs: Mapping[str, Runs], first: str, key: str, resamples: int) -> dict[str, str]:
    from rliable import library, metrics

    averaged = is_averaged(runs, key)
    mean = metrics.aggregate_mean if averaged else metrics.aggregate_iqm
    scores = {name: np.array([of[seed][key] for seed in sorted(of)]).T for name, of in runs.items()}
    with repeatable_rliable():
        points, bounds = library.get_interval_estimates(scores, lambda x: np.array([mean(x)]), reps=resamples)
    cells = {}
    for name, of in runs.items():
        sign = 0
        if first in runs and name != first:
            sign = excess(of, runs[first], key, resamples, averaged).sign
        value = Estimate(float(points[name][0]), *map(float, bounds[name][:, 0]))
        if not scores[name].any():  # the bootstrap would say that it never can happen
            value = wilson(0.0, scores[name].size)
        cells[name] = measures.format_estimate(value) + ("", " ▲", " ▼")[sign]
    return cells


def excess(own: Runs, others: Runs, key: str, resamples: int, averaged: bool | None = None) -> Estimate:
    """The difference of two methods over runs and games; runs of the same seed are pairs.

    It is one of means where `averaged`, else of interquartile means; None: by `is_averaged` of these two methods.
    """
    both, generator = sorted(own.keys() & others.keys()), np.random.default_rng(0)
    first, other = (np.array([of[seed][key] for seed in both or sorted(of)]) for of in (own, others))
    if averaged is None:
        averaged = is_averaged({"own": own, "others": others}, key)
    mean, drawn = np.mean if averaged else interquartile_mean, np.empty(resamples)
    for place in range(resamples):
        games = generator.integers(first.shape[1], size=first.shape[1])
        runs = generator.integers(len(first), size=len(first))
        other_runs = runs if both else generator.integers(len(other), size=len(other))
        drawn[place] = mean(first[runs][:, games].ravel()) - mean(other[other_runs][:, games].ravel())
    return Estimate(float(mean(first.ravel()) - mean(other.ravel())), *percentile_interval(drawn))


def claims(runs: Mapping[str, Runs], stated: Sequence[Claim], resamples: int) -> tuple[str, bool]:
    """Markdown with a line per claim, and whether none fails; a claim without runs does not fail.

    Raises UserError: both methods have runs, and these lack the measure.
    """
    lines, carried = ["Claims (95 % intervals of the paired differences):", ""], True
    for claim in stated:
        more, less, told = runs[claim.more], runs[claim.less], "not run yet"
        if more and less:
            for games in (*more.values(), *less.values()):
                if claim.measure not in games:
                    raise UserError(
                        f"config.claims={claim}: its games have {', '.join(games)}, and no {claim.measure}"
                    )
            gap = excess(more, less, claim.measure, resamples)
            holds = gap.low > claim.margin
            carried &= holds
            told = f"**{'holds' if holds else 'does not hold'}**, {measures.format_estimate(gap)}"
        lines.append(f"* {claim}: {told}.")
    return "\n".join(lines), carried
