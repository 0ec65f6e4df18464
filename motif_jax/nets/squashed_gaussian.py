"""The policy over real numbers: a normal distribution of each number, squashed by tanh into (-1,
1).

Source: Haarnoja et al. 2018, "Soft Actor-Critic", appendix C. The functions take `xp`, which is
numpy or jax.numpy: actors play with the first and import no jax.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# Of a number before it is squashed. With a head's output of 0 it is 0: tanh spreads such a number
# nearly evenly over (-1, 1).
_LOG_STD_RANGE = (-4.0, 1.0)
_OFFSET = math.log(-_LOG_STD_RANGE[0] / _LOG_STD_RANGE[1])
# The greatest action: nearer to 1, float32 has too few numbers to find back what was squashed.
_EDGE = 1 - 2.0**-20
# Gauss-Hermite nodes and their weights, which add up to 1, for means over a standard normal
# distribution.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)
_SHARES = _WEIGHTS / _WEIGHTS.sum()


def num_outputs(action_size: int) -> int:
    """How many numbers a network has to give for an action of `action_size` numbers."""
    return 2 * action_size


def moments(xp: Any, outputs: Any) -> tuple[Any, Any]:
    """Means and logarithms of the standard deviations, [..., n] each, of the numbers before they
    are squashed.

    Args:
      outputs: float [..., 2 n], of a network.
    """
    mean, raw = xp.split(outputs, 2, axis=-1)
    low, high = _LOG_STD_RANGE
    # A sigmoid by tanh, whose gradient stays finite.
    share = 0.5 + 0.5 * xp.tanh(0.5 * (raw + _OFFSET))
    return mean, low + (high - low) * share


def squashed(xp: Any, outputs: Any, normal: Any) -> Any:
    """The actions [..., n] that standard normal numbers [..., n] stand for; those of zeros are the
    likeliest before squashing.
    """
    mean, log_std = moments(xp, outputs)
    return xp.clip(xp.tanh(mean + xp.exp(log_std) * normal), -_EDGE, _EDGE)


def log_prob(xp: Any, outputs: Any, action: Any) -> Any:
    """The logarithm of the density [...], in nats, of actions [..., n] that `squashed` gave."""
    mean, log_std = moments(xp, outputs)
    number = xp.arctanh(action)
    distance = (number - mean) * xp.exp(-log_std)
    log_normal = -0.5 * (distance * distance + math.log(2 * math.pi)) - log_std
    return xp.sum(log_normal - xp.log1p(-action * action), axis=-1)


def entropy(xp: Any, outputs: Any) -> Any:
    """The differential entropy [...], in nats, of actions; ln 2 for each number where all actions
    are equally likely, the most.

    The mean of the logarithm of tanh's slope is an integral over each number, by quadrature with 16
    nodes.
    """
    mean, log_std = moments(xp, outputs)
    numbers = mean[..., None] + xp.exp(log_std)[..., None] * _NODES.astype(outputs.dtype)
    # log(1 - tanh(x)^2), which is finite for any x.
    log_slope = 2 * (math.log(2) - numbers - xp.logaddexp(-2 * numbers, 0.0))
    mean_log_slope = xp.sum(log_slope * _SHARES.astype(outputs.dtype), axis=-1)
    return xp.sum(0.5 * math.log(2 * math.pi * math.e) + log_std + mean_log_slope, axis=-1)
