"""Where test_language_agent and collect_trajectories take an agent to."""

from __future__ import annotations

import pytest

from motif_jax.glam import collect_trajectories, eval_agents
from motif_jax.glam.config import LevelPolicy
from motif_jax.play import evaluation_setup
from motif_jax.schema import read_section
from tests.play import untrained
from tests.reward_fixtures import load_config

MIXED = "BabyAI-MixedTrainLocal-v0"


@pytest.mark.extra
def test_an_agent_of_one_task_plays_on_other_levels(tmp_path):
    trained = {"environment.name": MIXED, "environment.babyai_text.kind": "goto"}
    agent = str(tmp_path / "agent")
    untrained.write(
        tmp_path / "agent", "symbolic", {"reward.intrinsic_coefficient": 0.0, **trained}
    )
    for other, left in ((MIXED, {"goto"}), ("BabyAI-GoToRedBallGrey-v0", set()), (None, {"goto"})):
        config = load_config("test_language_agent")
        config.policy = agent
        config.environment.name = other
        base = eval_agents.open_agent(read_section(LevelPolicy, config)).base
        assert (base.environment, {base.options.get("kind")} - {None}) == (other or MIXED, left)
        setup = evaluation_setup.open_setup(evaluation_setup.of_folder(agent, environment=other))
        assert (setup.environment, {setup.options.get("kind")} - {None}) == (other or MIXED, left)
        collecting = load_config("collect_trajectories")
        collecting.policy = agent
        collecting.environment.name = other
        collect_trajectories.check(collecting, tmp_path / "none")
