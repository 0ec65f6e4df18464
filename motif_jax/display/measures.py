"""Names, units and formats of an episode's measures, and the table of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from motif_jax.display import statistics
from motif_jax.display.statistics import (
    CONFIDENCE,
    RESAMPLES,
    Difference,
    Estimate,
    Summary,
    mean_of,
    rate_difference,
    summarise,
)


class Measure(NamedTuple):
    """A number of an episode: its key in the rows, title, unit and description."""

    key: str
    title: str
    unit: str
    meaning: str


# Key in the rows -> title, unit, description.
_LISTED = {
    "return": ("return", "reward", "sum of the task's reward, unscaled"),
    "intrinsic_return": (
        "intrinsic return",
        "reward",
        "sum of the intrinsic reward after threshold and count discount, before its coefficient",
    ),
    "intrinsic_return_uncounted": ("intrinsic return, uncounted", "reward", "the same without the count discount"),
    "score": ("game score", "points", "the game's own score in the status line"),
    "dlvl": ("dungeon level", "", "depth at the end"),
    "gold": ("gold", "pieces", "gold carried at the end"),
    "gathered": ("gold gathered", "pieces", "gold that the hero picked up, without the heaps of vaults (more than 50)"),
    "xlvl": ("experience level", "", "the hero's experience level at the end"),
    "scout": ("scout", "cells", "map cells seen, summed over the levels visited"),
    "turns": ("game time", "turns", "the game's clock at the end"),
    "length": ("length", "steps", "actions taken"),
    "achievements": ("achievements", "of 22", "kinds of Crafter's achievements that the episode reached"),
    "success": ("success rate", "share", "episodes that reached the task's goal"),
    "through_door": ("through door", "share", "episodes in which the agent went through a door"),
    "bot_agreement": ("agreement with the bot", "share of steps", "steps at which the bot would have done the same"),
    "kills": ("kills", "messages", "messages that said that the hero killed something"),
    "deaths": ("deaths", "share", "games that the hero died in"),
    "token_return": ("token return", "reward", "the return, and what the tokens of actions are paid themselves"),
    "divergence": ("divergence from the policy", "nats", "log p - log pi of what was said, summed over an episode"),
    "entropy": ("entropy", "nats", "-log p of what was said, summed over an episode"),
    "policy_loss": ("policy loss", "nats", "-log pi of a token of the agent's side, mean over a dialogue"),
    "q": ("Q", "reward", "the smaller online Q of a token, mean over a dialogue"),
    "v": ("V", "reward", "V before a token, mean over a dialogue"),
    "advantage": ("advantage", "reward", "target Q - V of a token, mean over a dialogue"),
    "actions_cut": ("actions cut", "actions", "actions that were cut at decode.max_tokens"),
    "repeated_guesses": ("repeated guesses", "guesses", "guesses that were made before in the same game"),
    "captions_cut": ("captions cut", "steps", "steps whose text was cut at environment.text_bytes"),
    "tokens_said": ("tokens said", "tokens", "tokens of the agent's actions"),
    "hallucination": ("hallucination", "share of steps", "steps taken under hallucination"),
}  # fmt: skip
BY_KEY = {
    key: Measure(key, title, unit, meaning) for key, (title, unit, meaning) in _LISTED.items()
}
# The result of any task.
RESULT = ("success", "return")
# What is progress, too, in the games that this package knows: 1 if more is better, else -1. What
# the numbers of another environment's `info` mean, nobody but its user knows.
PROGRESS = {"through_door": 1, "kills": 1, "dlvl": 1, "score": 1, "xlvl": 1, "scout": 1}
# Numbers of an episode's row that are not measures. BabyAI-Text: `kind` is the index of a kind of
# task, `limit` its most steps.
_NO_MEASURES = (
    "index", "seed", "end", "end_reason", "session", "session_seconds", "failed_requests", "step", "env", "steps", "episode",
    "truncated", "kind", "limit",
)  # fmt: skip

# Begin with 1: where they are 1 in all games, nothing says that they could be 0.
_FROM_ONE = ("dlvl", "xlvl", "turns", "length")


def with_unit(described: Measure) -> str:
    """The title, with the unit in brackets if it has one."""
    return f"{described.title} ({described.unit})" if described.unit else described.title


def measure(key: str) -> Measure:
    """The measure of `key`; an unlisted measure has its key as title."""
    return BY_KEY.get(key, Measure(key, key.replace("_", " "), "", ""))


def in_order(keys: Iterable[str]) -> list[str]:
    """The measures among `keys`: listed ones first, then the others in their order."""
    distinct = dict.fromkeys(keys)
    listed = [key for key in BY_KEY if key in distinct]
    return listed + [key for key in distinct if key not in BY_KEY and key not in _NO_MEASURES]


def is_rate(key: str, values: np.ndarray) -> bool:
    """Whether a measure's `values`, of any shape, are all 0 or 1, so that their mean says how often
    something happened.

    The mean then has Wilson's interval, and a difference Newcombe's. The bootstrap would say of
    what happened in all games that it must.
    """
    return key not in _FROM_ONE and bool(np.isin(values, (0.0, 1.0)).all())


def mean(
    key: str,
    values: np.ndarray,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The mean of a measure's `values` [n], as `is_rate` says."""
    return mean_of(values, is_rate(key, values), resamples, confidence)


def difference(
    key: str,
    first: np.ndarray,
    second: np.ndarray,
    paired: bool,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Difference:
    """The difference of two means of a measure, values [n] and [m], as `is_rate` says of both.

    With `paired` n = m, and position i of both is the same game.
    """
    if is_rate(key, np.concatenate([first, second])):
        return rate_difference(first, second, paired, confidence)
    return statistics.difference(first, second, paired, resamples, confidence)


def summarise_rows(
    rows: Sequence[Mapping[str, Any]],
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> dict[str, Summary]:
    """One summary per measure that every row has: listed ones first, then the others by name."""
    ordered = sorted(rows, key=lambda row: row["index"])
    # JSON has null for what is not finite: such a measure is left out.
    numbers = [
        {key for key, value in row.items() if isinstance(value, int | float)} for row in ordered
    ]
    summaries = {}
    for key in in_order(sorted(set.intersection(*numbers))) if numbers else []:
        values = np.array([row[key] for row in ordered], np.float64)
        summary = summarise(values, resamples, confidence)
        if is_rate(key, values):
            rate = mean(key, values, resamples, confidence)
            summary = replace(summary, mean=rate, rate=True)
        summaries[key] = summary
    return summaries


def partly_shown(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The numbers that only some episodes show, and how many do: `summarise_rows` leaves them
    out.
    """
    counts: dict[str, int] = {}
    for row in rows:
        for key, value in row.items():
            if isinstance(value, int | float):
                counts[key] = counts.get(key, 0) + 1
    partly = {key: count for key, count in counts.items() if count < len(rows)}
    return {key: partly[key] for key in in_order(sorted(partly))}


def progress_keys(keys: Iterable[str], named: Mapping[str, int] = PROGRESS) -> list[str]:
    """The measures among `keys` that show progress: the task's success and return, then those that
    are `named`.
    """
    measured = set(keys)
    return [key for key in dict.fromkeys((*RESULT, *named)) if key in measured]


def format_alike(values: Sequence[float]) -> list[str]:
    """Formats all values with equal decimals, three significant digits of the largest."""
    finite = [abs(value) for value in values if np.isfinite(value)]
    largest = max(finite, default=0.0)
    if all(value == int(value) for value in finite):
        decimals = 0
    elif 1 <= largest < 100:
        decimals = 2
    else:
        decimals = min(6, max(0, 2 - int(np.floor(np.log10(largest)))))
    return [f"{value:,.{decimals}f}" if np.isfinite(value) else "n/a" for value in values]


def format_value(value: float) -> str:
    """Returns `value` with three significant digits and thousands separated."""
    if not np.isfinite(value):
        return "n/a"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if value == int(value):
        return f"{int(value)}"
    return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.1e}"


def format_estimate(estimate: Estimate) -> str:
    """'value [low, high]', 'n/a' without a value."""
    value = format_value(estimate.value)
    return value if value == "n/a" else f"{value} {format_interval(estimate)}"


def alike(*estimates: Estimate) -> list[str]:
    """'value [low, high]' for each estimate, all with equal decimals."""
    numbers: list[float] = []
    for estimate in estimates:
        numbers += [estimate.value, estimate.low, estimate.high]
    texts = format_alike(numbers)
    shown = zip(texts[::3], texts[1::3], texts[2::3], strict=True)
    return [
        value if value == "n/a" else f"{value} {_bounds(low, high)}" for value, low, high in shown
    ]


def _bounds(low: str, high: str) -> str:
    return "[n/a]" if "n/a" in (low, high) else f"[{low}, {high}]"


def format_interval(estimate: Any) -> str:
    """'[low, high]' of an `Estimate` or a `Change`, '[n/a]' without an interval."""
    return _bounds(format_value(estimate.low), format_value(estimate.high))


def format_pairs(difference: Difference) -> str:
    """Says whether a difference is one of pairs."""
    return f"{difference.pairs:,} pairs" if difference.pairs else "no pairs"


HEADER = ("measure (unit)", "mean", "median", "interquartile mean", "range")


def table_rows(summaries: Mapping[str, Summary]) -> list[tuple[str, ...]]:
    """The cells of an evaluation's table below `HEADER`; a rate has no median."""
    rows: list[tuple[str, ...]] = []
    for key in in_order(summaries):
        summary = summaries[key]
        title = with_unit(measure(key))
        shown_mean = format_estimate(summary.mean)
        if summary.rate:
            rows.append((title, shown_mean, "", "", ""))
            continue
        span = f"{format_value(summary.minimum)} to {format_value(summary.maximum)}"
        median = format_estimate(summary.median)
        rows.append((title, shown_mean, median, format_estimate(summary.iqm), span))
    return rows
