"""Rewards of single tokens, in addition to the rewards of actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json

# tokens int32 [A] -> rewards float64 [A], a new array
TokenReward = Callable[[np.ndarray], np.ndarray]


def constant(value: float) -> TokenReward:
    """The same reward for every token."""
    return lambda tokens: np.full(len(tokens), value, np.float64)


def by_token(values: Mapping[int, float], scale: float, shift: float) -> TokenReward:
    """`scale` times a token's value, plus `shift`; tokens without a value have 0."""
    return lambda tokens: np.array(
        [values.get(n, 0.0) * scale + shift for n in tokens.tolist()], float
    )


def from_file(path: str | Path, scale: float = 1.0, shift: float = 0.0) -> TokenReward:
    """`by_token` of the values of a file; raises as `read`."""
    return by_token(read(path), scale, shift)


def read(path: str | Path) -> dict[int, float]:
    """The values of a JSON object, token number -> value (such as its frequency); UserError for
    another form.
    """
    remedy = 'give a file such as {"262": 0.01}, the number of a token and its value'
    values: dict[int, float] = {}
    for token, value in read_json(path, remedy).items():
        if not (token.isascii() and token.isdigit() and checks.is_finite(value)):
            raise UserError(
                f"{path}: {token}: {value} is not a token's number and a finite value: {remedy}"
            )
        values[int(token)] = float(value)
    return values
