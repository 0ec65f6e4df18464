"""The scripted player of Crafter reaches what random play does not."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.episode import play

pytest.importorskip(
    "crafter", reason="the package crafter is not there: pip install 'motif-jax[crafter]'"
)

from motif_jax.envs.crafter.players import Gatherer


@pytest.mark.slow
def test_the_gatherer_builds_a_table_and_makes_tools():
    environment = registry.make("Crafter-v1", max_episode_steps=300)
    achieved = np.zeros(3)
    for seed in range(3):
        for _ in play(environment, seed, Gatherer(environment.spec).player(seed, environment.spec)):
            pass
        info = environment.episode_info()
        achieved += [info[name] for name in ("collect_wood", "place_table", "make_wood_pickaxe")]

    assert (achieved >= 2).all()


def test_the_gatherer_plays_an_episode_again_from_its_seed():
    environment = registry.make("Crafter-v1", max_episode_steps=40)

    episodes = [
        [
            step.action
            for step in play(environment, 1, Gatherer(environment.spec).player(1, environment.spec))
        ]
        for _ in range(2)
    ]

    assert episodes[0] == episodes[1]
