"""Turns a model's raw rewards into the agent's: normalised, and 0 up to a threshold."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import numpy as np

# Levels of the quantiles that every evaluation of a reward model has.
QUANTILE_LEVELS = tuple(round(0.05 * i, 2) for i in range(1, 20))


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
