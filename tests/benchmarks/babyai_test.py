"""The benchmark of BabyAI-Text: both sides play the same episodes."""

from __future__ import annotations

import pytest

from motif_jax.benchmarks import babyai
from motif_jax.support import resources
from motif_jax.support.errors import UserError


@pytest.mark.parametrize("level", ["BabyAI-GoToLocal-v0", "BabyAI-MixedTrainLocal-v0"])
def test_a_small_run(level):
    config = resources.config("benchmark", "babyai")
    config.repeats = 1
    config.options.update(level=level, episodes=3)
    line = babyai.run(config)
    assert line["ratio"] == line["value"] / line["baseline"]["value"]
    assert line["settings"]["steps_a_repeat"] > 3


def test_levels_that_are_none_are_named():
    config = resources.config("benchmark", "babyai")
    config.options.level = "NetHackScore-v1"
    with pytest.raises(
        UserError, match=r"config.options.level='NetHackScore-v1': must be a level of BabyAI-Text"
    ):
        babyai.check(config)
