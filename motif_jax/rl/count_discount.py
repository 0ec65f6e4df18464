"""The count discount of intrinsic rewards, free of jax: training, wrappers, evaluations and films
call it.

Source: Klissarov, D'Oro et al. 2023, "Motif", section 3, equation 2.
"""

from __future__ import annotations

from typing import Any


def discount(reward: Any, visits: Any, exponent: float) -> Any:
    """g / N^exponent, with g the reward for a text and N its visits in the episode so far, the
    present one included.

    Args:
      reward: g, a number, or an array of numpy or jax of any shape.
      visits: N, at least 1: a number, or an array of the shape of `reward`. An array that is not of
        the type of `reward` may widen the quotient.
      exponent: 0 leaves counts out; the published one is 3.

    Returns:
      A number, or an array of the shape of `reward`.
    """
    return reward / visits**exponent
