"""What the wrappers' rewards are made of: terms and functions that nobody could be paid by are
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from motif_jax import wrappers
from motif_jax.core.errors import UserError


class Greeting(gymnasium.Env):
    """Says the same at every step."""

    observation_space = gymnasium.spaces.Dict({"message": gymnasium.spaces.Text(10)})
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        return {"message": "hello"}, {}

    def step(self, action: int) -> tuple[dict, float, bool, bool, dict]:
        return {"message": "hello"}, 1.0, False, False, {}


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda texts: 1.0, r"a number for each of 2 texts, \[2\], and gave \[\]"),
        (lambda texts: [1.0], r"\[2\], and gave \[1\]"),
        (lambda texts: np.ones((len(texts), 1)), r"\[2\], and gave \[2, 1\]"),
        (lambda texts: None, r"\[2\], and gave \[\]"),
        (lambda texts: ["much"] * len(texts), "must return numbers"),
        (lambda texts: [1.0, float("nan")], "no finite number for the text b'hello'"),
    ],
)
def test_a_function_without_a_number_for_each_text_is_refused(
    function: Callable[..., Any], fault: str
) -> None:
    envs = wrappers.VectorIntrinsicReward(SyncVectorEnv([Greeting, Greeting]), function)
    envs.reset(seed=0)
    with pytest.raises(UserError, match=fault):
        envs.step(np.zeros(2, int))


def test_terms_take_numpys_numbers_and_weights_below_zero() -> None:
    terms = wrappers.Terms(count_exponent=np.float32(2), intrinsic_coefficient=-1, quantile=None)
    assert terms.total(np.zeros(1), terms.counted(np.ones(1), np.array([2])))[0] == -0.25
