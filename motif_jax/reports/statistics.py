"""Means, medians and interquartile means over episodes, with bootstrap confidence intervals.

Method, stated wherever the numbers are shown: percentile bootstrap (Efron and Tibshirani 1993, chapter 13); the
episodes are drawn with replacement `RESAMPLES` times with a fixed seed, and the interval holds the middle 95 % of the
statistic. The interquartile mean (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical
precipice") leaves out the lowest and the highest quarter. Rates of yes and no have Wilson's score interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.95
# Values handled at a time: bounds the memory of a resampled table at 64 MB.
_CHUNK = 8_000_000


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Returns the mean along the last axis without its lowest and highest quarter, [...] from [..., n]."""
    values = np.sort(np.asarray(values, np.float64), -1)
    cut = values.shape[-1] // 4
    return values[..., cut : values.shape[-1] - cut].mean(-1)


def _mean(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float64).mean(-1)


def _median(values: np.ndarray) -> np.ndarray:
    return np.median(np.asarray(values, np.float64), -1)


STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": _mean,
    "median": _median,
    "iqm": interquartile_mean,
}


@dataclass(frozen=True)
class Estimate:
    """A statistic and its confidence interval."""

    value: float
    low: float
    high: float

    def disjoint(self, other: Estimate) -> bool:
        """Whether the two intervals share no value."""
        return self.low > other.high or other.low > self.high


@dataclass(frozen=True)
class Summary:
    """What is said of one number over `n` episodes."""

    n: int
    mean: Estimate
    median: Estimate
    iqm: Estimate
    std: float
    minimum: float
    maximum: float

    def as_dict(self) -> dict[str, object]:
        """Returns nested dictionaries of numbers."""
        return asdict(self)

    @staticmethod
    def from_dict(values: dict) -> Summary:
        """Undoes `as_dict`."""
        estimates = {name: Estimate(**values[name]) for name in STATISTICS}
        return Summary(**{**values, **estimates})


def bootstrap(
    values: np.ndarray,
    statistics: Sequence[Callable[[np.ndarray], np.ndarray]],
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> list[Estimate]:
    """Estimates each statistic and its percentile bootstrap interval.

    Args:
      values: [n], or [k, n]: k numbers of the same n episodes, resampled together.
      statistics: functions of [..., n] to [...] (or of [k, resamples, n] to [resamples]).
      resamples: how often the n episodes are drawn with replacement.
      confidence: share of resampled statistics inside the interval.
      seed: of the draws.

    Raises:
      ValueError: there are no values, or one is not finite.
    """
    values = np.asarray(values, np.float64)
    n = values.shape[-1]
    if n == 0 or not np.isfinite(values).all():
        raise ValueError(
            f"{n} values, all finite: {bool(np.isfinite(values).all())}: needs finite ones, at least one"
        )
    generator = np.random.default_rng(seed)
    rows = max(1, _CHUNK // values.size)
    drawn: list[list[np.ndarray]] = [[] for _ in statistics]
    for start in range(0, resamples, rows):
        chosen = generator.integers(n, size=(min(rows, resamples - start), n))
        sample = values[..., chosen]
        for kept, statistic in zip(drawn, statistics, strict=True):
            kept.append(np.asarray(statistic(sample)))
    tail = 100 * (1 - confidence) / 2
    estimates = []
    for kept, statistic in zip(drawn, statistics, strict=True):
        low, high = np.percentile(np.concatenate(kept), [tail, 100 - tail])
        estimates.append(Estimate(float(statistic(values)), float(low), float(high)))
    return estimates


def summarise(
    values: Sequence[float] | np.ndarray,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Summary:
    """Returns mean, median and interquartile mean of `values` [n] with intervals, and spread and range."""
    array = np.asarray(values, np.float64)
    mean, median, iqm = bootstrap(array, list(STATISTICS.values()), resamples, confidence, seed)
    return Summary(len(array), mean, median, iqm, float(array.std()), float(array.min()), float(array.max()))


def wilson_interval(values: Sequence[float] | np.ndarray, confidence: float = CONFIDENCE) -> Estimate:
    """Returns the share of ones among `values` [n], each 0 or 1, with Wilson's score interval (Wilson 1927).

    Unlike the bootstrap it has a width when all values are equal.
    """
    array = np.asarray(values, np.float64)
    n, share = len(array), float(array.mean())
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if share == 0 else float(middle - half)
    return Estimate(share, low, 1.0 if share == 1 else float(middle + half))


def paired_difference(
    first: np.ndarray, second: np.ndarray, resamples: int = RESAMPLES, confidence: float = CONFIDENCE
) -> Estimate:
    """Estimates the mean of `first - second` [n] over episodes with the same seeds."""
    difference = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    return bootstrap(difference, [_mean], resamples, confidence)[0]


def probability_of_improvement(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the chance that an episode of `first` [n] beats one of `second` [m], ties counting half.

    This is the Mann-Whitney statistic divided by n m (Agarwal et al. 2021, section 4.3).
    """
    first, second = np.asarray(first, np.float64), np.sort(np.asarray(second, np.float64))
    below = np.searchsorted(second, first, "left")
    up_to = np.searchsorted(second, first, "right")
    return float((below + up_to).sum() / (2 * len(first) * len(second)))
