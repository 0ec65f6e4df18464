"""Texts of vectors of environments: which sources fit a vector, and which do not."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from motif_jax.envs.gym_task.captions import CaptionedStep
from motif_jax.envs.gym_task.text_readers import BatchReader


class Silent(gymnasium.Env):
    """Plays nothing; its observations are of the space that it is made with."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: gymnasium.Space) -> None:
        self.observation_space = space


def vector(space: gymnasium.Space) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Silent(space)] * 2)


@pytest.mark.parametrize(
    ("space", "source", "observation"),
    [
        (spaces.Text(20), "obs:observation", "A bell."),
        (spaces.Box(0, 255, (7,), np.uint8), "obs:observation", np.frombuffer(b"A bell.", "u1")),
        (spaces.Dict(a=spaces.Tuple([spaces.Text(20)])), "obs:a.0", {"a": ("A bell.",)}),
    ],
    ids=["text", "bytes", "nested"],
)
def test_a_path_is_that_of_one_environment(
    space: gymnasium.Space, source: str, observation: Any
) -> None:
    reader = BatchReader(source, None, vector(space))

    (text,) = reader.texts({1: CaptionedStep(observation, {}, None)}).values()

    assert text is (observation["a"][0] if isinstance(observation, dict) else observation)
