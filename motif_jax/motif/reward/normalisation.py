"""Statistics of a reward over a dataset, in float64 on the host, and what they make of raw rewards:
the agent's, normalised, and 0 up to a threshold.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import chex
import jax
import numpy as np

# Levels of the quantiles that every evaluation of a reward model has.
QUANTILE_LEVELS = tuple(round(0.05 * i, 2) for i in range(1, 20))


def weighted_moments(values: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Mean and population variance of numbers [M] that occur `counts` times [M], of which one is
    above 0; exact to float64.
    """
    values = np.asarray(values, np.float64)
    counts = np.asarray(counts, np.float64)
    chex.assert_equal_shape([values, counts])
    total = counts.sum()
    mean = float((values * counts).sum() / total)
    # A second pass, since one pass loses the small variances of fresh networks to cancellation.
    variance = float((np.square(values - mean) * counts).sum() / total)
    return mean, variance


@dataclasses.dataclass
class RunningMoments:
    """The published running mean and variance (compat.running_statistics).

    Batches are merged by the parallel-variance rule (Chan et al. 1979) with the UNBIASED variance
    of a batch times its size, which is a little too large.
    """

    mean: float = 0.0
    variance: float = 1.0
    count: float = 1e-4

    def update(self, batch: np.ndarray, decay: float = 1.0) -> None:
        """Merges numbers [n], n >= 1 (the variance of one counts as 0); `decay` in (0, 1] weighs
        earlier numbers.
        """
        self.count *= decay
        batch = np.asarray(batch, np.float64).reshape(-1)
        size = batch.size
        batch_variance = batch.var(ddof=1) if size > 1 else 0.0
        delta = batch.mean() - self.mean
        total = self.count + size
        # Sum of squared deviations: of both parts, and of the distance of their means.
        squares = (
            self.variance * self.count
            + batch_variance * size
            + delta**2 * self.count * size / total
        )
        self.mean = self.mean + delta * size / total
        self.variance = squares / total
        self.count = total


def quantiles(values: np.ndarray, levels: tuple[float, ...] = QUANTILE_LEVELS) -> np.ndarray:
    """Quantiles float64 [levels] of numbers [M], linear between neighbours."""
    return np.quantile(np.asarray(values, np.float64), levels)


@dataclasses.dataclass(frozen=True)
class Normalisation:
    """Mean and variance of the raw reward over all training messages with multiplicity, and the
    threshold.

    Attributes:
      variance: where it is 0 the rewards are only centred.
      threshold: normalised rewards that are not strictly above it count as 0; None for no
          threshold.
      enabled: False leaves the raw reward as it is, before the threshold.

    Raises ValueError: a number is not finite, or the variance is negative.
    """

    mean: float = 0.0
    variance: float = 1.0
    threshold: float | None = None
    enabled: bool = True

    def __post_init__(self) -> None:
        # With a number that is not finite every reward would be 0, without an error.
        numbers = (self.mean, self.variance, 0.0 if self.threshold is None else self.threshold)
        if not all(map(math.isfinite, numbers)) or self.variance < 0:
            raise ValueError(
                f"mean, variance, threshold {numbers}: finite, and a variance of at least 0 expected"
            )

    def normalise(self, raw: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
        """(raw - mean) / sqrt(variance), float32, any shape; `raw` itself if not enabled."""
        if not self.enabled:
            return raw
        deviation = math.sqrt(self.variance) if self.variance > 0 else 1.0
        return (raw - np.float32(self.mean)) / np.float32(deviation)

    def __call__(self, raw: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
        """The intrinsic reward g of raw rewards, float32, any shape."""
        value = self.normalise(raw)
        if self.threshold is None:
            return value
        # The product keeps values that are not finite; adding 0 turns -0.0 into 0.
        return value * (value > np.float32(self.threshold)) + np.float32(0)


def two_decimals(values: Sequence[float] | np.ndarray) -> list[float]:
    """The values as the published quantile file holds them: written with two decimals."""
    return [float(f"{value:.2f}") for value in values]
