"""Means, medians and interquartile means over episodes, and differences of means, with bootstrap
confidence intervals.

Percentile bootstrap (Efron and Tibshirani 1993, chapter 13): episodes are drawn with replacement
`RESAMPLES` times with a fixed seed; the interval holds the middle 95 % of the statistic. The
interquartile mean (Agarwal et al. 2021) leaves out the lowest and the highest quarter. Rates have
Wilson's score interval, and differences of rates Newcombe's. A difference is paired if both sides
played the same games.
"""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.95
# Values resampled at a time: limits a resampled table to 64 MB.
RESAMPLED_VALUES = 8_000_000
# The mean of more draws than this is nearly normal, and is drawn from a normal distribution.
_NORMAL = 20_000


@contextlib.contextmanager
def repeatable_rliable() -> Iterator[None]:
    """Makes rliable's draws in the block the same each time: rliable always uses numpy's global
    generator.
    """
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    try:
        with warnings.catch_warnings():
            # rliable calls arch in a deprecated way.
            warnings.filterwarnings("ignore", "random_state is deprecated", FutureWarning)
            yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """The mean along the last axis without its lowest and highest quarter, [...] from [..., n]."""
    values = np.sort(np.asarray(values, np.float64), -1)
    # As rliable's: of fewer than four values none is left out.
    cut = values.shape[-1] // 4
    return values[..., cut : values.shape[-1] - cut].mean(-1)


Statistic = Callable[[np.ndarray], Any]  # of [..., n] to [...]
_MEAN: Statistic = functools.partial(np.mean, axis=-1)
_MEDIAN: Statistic = functools.partial(np.median, axis=-1)


@dataclass(frozen=True)
class Estimate:
    """A statistic and its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or -1 where the whole interval lies above or below 0, else 0."""
        if self.low > 0:
            return 1
        return -1 if self.high < 0 else 0


@dataclass(frozen=True)
class Difference(Estimate):
    """A difference of two means over `pairs` of games, 0 if it is unpaired."""

    pairs: int = 0


@dataclass(frozen=True)
class Summary:
    """Statistics of one number over `n` episodes; of a `rate` median and `iqm` say nothing."""

    n: int
    mean: Estimate
    median: Estimate
    iqm: Estimate
    std: float
    minimum: float
    maximum: float
    rate: bool = False

    @staticmethod
    def from_dict(values: dict) -> Summary:
        """A summary from JSON, where bounds that are not there are null."""
        estimates = {}
        for name in ("mean", "median", "iqm"):
            numbers = {
                key: math.nan if bound is None else bound for key, bound in values[name].items()
            }
            estimates[name] = Estimate(**numbers)
        return Summary(**values | estimates)


def bootstrap(
    values: np.ndarray,
    statistics: Sequence[Statistic],
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> list[Estimate]:
    """Each statistic of `values` [n] with its percentile bootstrap interval, which one value does
    not have: its bounds are NaN.

    Raises ValueError: no values, or not finite ones.
    """
    values = np.asarray(values, np.float64)
    if not len(values) or not np.isfinite(values).all():
        raise ValueError(f"{len(values)} values: needs finite ones, at least one")
    if len(values) == 1:
        return [Estimate(float(statistic(values)), math.nan, math.nan) for statistic in statistics]
    drawn = _resampled(values, statistics, resamples, np.random.default_rng(0))
    estimates = []
    for statistic, drawn_values in zip(statistics, drawn, strict=True):
        low, high = percentile_interval(drawn_values, confidence)
        estimates.append(Estimate(float(statistic(values)), low, high))
    return estimates


def _resampled(
    values: np.ndarray,
    statistics: Sequence[Statistic],
    resamples: int,
    generator: np.random.Generator,
) -> list[np.ndarray]:
    """Each statistic of `resamples` draws with replacement from `values` [n], [resamples] each."""
    rows = max(1, RESAMPLED_VALUES // values.size)
    chunks: list[list[np.ndarray]] = []
    for start in range(0, resamples, rows):
        size = (min(rows, resamples - start), values.size)
        sample = values[generator.integers(values.size, size=size)]
        # All statistics are of the same draws.
        chunks.append([np.asarray(statistic(sample)) for statistic in statistics])
    return [
        np.concatenate(chunks_of_statistic) for chunks_of_statistic in zip(*chunks, strict=True)
    ]


def percentile_interval(drawn: np.ndarray, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The bounds of the middle `confidence` of `drawn` [resamples]."""
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return float(low), float(high)


def summarise(
    values: np.ndarray, resamples: int = RESAMPLES, confidence: float = CONFIDENCE
) -> Summary:
    """The statistics of `values` [n]."""
    array = np.asarray(values, np.float64)
    mean, median, iqm = bootstrap(
        array, [_MEAN, _MEDIAN, interquartile_mean], resamples, confidence
    )
    return Summary(
        len(array), mean, median, iqm, float(array.std()), float(array.min()), float(array.max())
    )


def mean_of(
    values: Sequence[float] | np.ndarray,
    rate: bool = False,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The mean of `values` [n] with its bootstrap interval; of a `rate`, each value 0 or 1, with
    Wilson's.
    """
    array = np.asarray(values, np.float64)
    if rate:
        return wilson(float(array.mean()), len(array), confidence)
    return bootstrap(array, [_MEAN], resamples, confidence)[0]


def wilson(share: float, n: int, confidence: float = CONFIDENCE) -> Estimate:
    """The `share` of yes among `n` with Wilson's score interval (1927), which has a width when all
    values are equal.
    """
    from scipy.stats import binomtest

    # `binomtest` takes the number of yes, which is the share times n.
    interval = binomtest(round(share * n), n).proportion_ci(confidence, "wilson")
    return Estimate(share, float(interval.low), float(interval.high))


# Game -> its result.
Games = Mapping[Any, float]


def matched(first: Games, second: Games) -> tuple[np.ndarray, np.ndarray, bool]:
    """Numbers [n] and [m] of two sides, and whether they are pairs: if they share half of the
    smaller side's games.
    """
    shared = [game for game in first if game in second]
    paired = bool(shared) and 2 * len(shared) >= min(len(first), len(second))
    if paired:
        return (
            np.array([first[game] for game in shared]),
            np.array([second[game] for game in shared]),
            True,
        )
    return np.array(list(first.values())), np.array(list(second.values())), False


def difference(
    first: np.ndarray,
    second: np.ndarray,
    paired: bool,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Difference:
    """Estimates mean(first) - mean(second), of values [n] and [m], by a bootstrap.

    With `paired` n = m, and position i of both is the same game: pairs are drawn together, so that
    a game's difficulty cancels; else each side by itself. Without bounds where a side has one game:
    nothing says how games differ.
    """
    generator = np.random.default_rng(0)

    def means(values: np.ndarray) -> np.ndarray:
        if len(values) > _NORMAL:
            return generator.normal(values.mean(), values.std() / np.sqrt(len(values)), resamples)
        return _resampled(values, [_MEAN], resamples, generator)[0]

    value = float(first.mean() - second.mean())
    pairs = len(first) if paired else 0
    if min(len(first), len(second)) < 2:
        return Difference(value, np.nan, np.nan, pairs)
    drawn = means(first - second) if paired else means(first) - means(second)
    low, high = percentile_interval(drawn, confidence)
    return Difference(value, low, high, pairs)


def rate_difference(
    first: np.ndarray, second: np.ndarray, paired: bool, confidence: float = CONFIDENCE
) -> Difference:
    """The difference of two rates (values 0 or 1, [n] and [m]) by Newcombe's hybrid of Wilson's
    intervals (1998, method 10).

    With `paired` n = m, and position i of both is the same game.
    """
    rate = mean_of(first, rate=True, confidence=confidence)
    other_rate = mean_of(second, rate=True, confidence=confidence)
    correlation = _correlation(first, second) if paired else 0.0

    def distance(a: float, b: float) -> float:
        # sqrt(a^2 - 2 phi a b + b^2), with a and b the rates' distances to their Wilson bounds and
        # phi the correlation. Rounding may leave the argument below 0.
        return float(np.sqrt(max(0.0, a * a - 2 * correlation * a * b + b * b)))

    value = rate.value - other_rate.value
    low = value - distance(rate.value - rate.low, other_rate.high - other_rate.value)
    high = value + distance(rate.high - rate.value, other_rate.value - other_rate.low)
    return Difference(value, low, high, len(first) if paired else 0)


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """The correlation of pairs of rates; a positive one is corrected for continuity (Newcombe's
    method 10).
    """
    n = len(first)
    p = float(first.mean())
    q = float(second.mean())
    scale = float(np.sqrt(p * (1 - p) * q * (1 - q)))
    if scale == 0:
        return 0.0
    covariance = float((first * second).mean()) - p * q  # (ad - bc) / n^2 of the 2x2 table
    if covariance > 0:
        covariance = max(0.0, covariance - 1 / (2 * n))
    return covariance / scale


def probability_of_improvement(first: np.ndarray, second: np.ndarray) -> float:
    """The chance that an episode of `first` [n] beats one of `second` [m], ties counting half
    (Agarwal et al. 2021, section 4.3).
    """
    from scipy.stats import mannwhitneyu

    # The Mann-Whitney statistic divided by n m.
    return float(
        mannwhitneyu(first, second, method="asymptotic").statistic / (len(first) * len(second))
    )
