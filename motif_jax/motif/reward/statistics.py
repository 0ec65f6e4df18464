"""Mean and variance of a reward over a data set, in float64 on the host, and quantiles of its
values.
"""

from __future__ import annotations

import dataclasses

import chex
import numpy as np

from motif_jax.motif.reward.normalisation import QUANTILE_LEVELS


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
