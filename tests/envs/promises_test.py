"""What every kind of environment promises: its spec, its return, and the same game for a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.spec import RUNNING, empty_observation
from tests.envs.playing import installed_names

# One environment of each kind and of each family of levels; others differ in their tables alone.
ENVIRONMENTS = [
    name
    for number, name in enumerate(installed_names())
    if "MiniHack" not in name or number % 6 == 0
]


def played(name: str, first_seed: int = 0, steps: int = 60) -> list[Any]:
    """Observations, rewards, ends and numbers while actions are drawn, episode after episode."""
    environment = registry.make(name)
    draws = np.random.default_rng(1)
    out = empty_observation(environment.spec)
    rows = []
    ended = True
    for step in range(steps):
        if ended:
            environment.reset(first_seed + step, out)
        reward, end = environment.step(int(draws.integers(environment.spec.num_actions)), out)
        ended = end != RUNNING
        rows.append(
            (
                {field: array.copy() for field, array in out.items()},
                reward,
                end,
                environment.episode_info(),
            )
        )
    environment.close()
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_shows_what_its_spec_says(name: str) -> None:
    observation = registry.spec(name).observation

    for shown, reward, end, info in played(name):
        assert {field: (a.shape, a.dtype.name) for field, a in shown.items()} == {
            field: (array.shape, array.dtype) for field, array in observation.items()
        }
        assert np.isfinite([reward, *info.values()]).all()
        assert end in (0, 1, 2)
        assert info["length"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_episodes_return_is_the_sum_of_its_rewards(name: str) -> None:
    total = 0.0
    for _, reward, end, info in played(name):
        total += reward
        assert info["return"] == pytest.approx(total, abs=1e-5)
        if end != RUNNING:
            total = 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_plays_the_same_game_for_the_same_seed(name: str) -> None:
    np.testing.assert_equal(played(name, steps=30), played(name, steps=30))
