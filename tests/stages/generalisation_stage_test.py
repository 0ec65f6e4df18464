"""The stage test_language_agent: resumed, killed, its files, and what it refuses."""

from __future__ import annotations

import json

import pytest

from motif_jax.reports import generalisation_files
from motif_jax.rollouts import eval_agents, evaluation_setup
from motif_jax.schema import values
from motif_jax.sections.played import LevelPolicy
from motif_jax.stages import collect_trajectories, test_language_agent, train_agent
from motif_jax.support.errors import UserError
from tests.language import talkers
from tests.reward_fixtures import load_config
from tests.rollouts import untrained

LOCAL, MIXED = "BabyAI-GoToLocal-v0", "BabyAI-MixedTrainLocal-v0"


def settings(**overrides):
    values = {"environment.name": LOCAL, "environment.max_episode_steps": 8}
    values |= {"tests": "no_modification_test,distractors_4", **overrides}
    return load_config("test_language_agent", "smoke", values)


def rows(workdir):
    lines = (workdir / "tests/no_modification_test/episodes.jsonl").read_text().splitlines()
    found = sorted(map(json.loads, lines), key=lambda row: row["index"])
    return [{key: row[key] for key in ("seed", "return", "length", "actions")} for row in found]


@pytest.mark.slow
def test_more_episodes_and_tests_are_added_to_those_that_are_there(tmp_path):
    assert test_language_agent.run(settings(), tmp_path) is None
    before = rows(tmp_path)
    config = settings(episodes=6, tests="distractors_4,BabyAI-GoToObj-v0")
    assert test_language_agent.run(config, tmp_path) is None
    assert len(before) == 4
    assert rows(tmp_path)[:4] == before
    tests = generalisation_files.read(tmp_path)["tests"]
    assert [test["episodes"] for test in tests] == [6, 6, 6]
    first = tests[0]["success"]["value"]
    changes = [test["success_change"]["value"] for test in tests]
    assert changes == pytest.approx([test["success"]["value"] - first for test in tests])
    with pytest.raises(UserError, match="seed: 0 before, 1 now"):
        test_language_agent.check(settings(seed=1), tmp_path)


def test_a_training_that_can_take_its_tests_is_told_nothing(tmp_path, capsys):
    model = str(talkers.write(tmp_path / "model"))
    values = {
        "network.model": model,
        "network.prompt_tokens": 170,
        "probes.prompts": "",
        "tests": "distractors_4",
    }
    train_agent.check(load_config("train_language_agent", "smoke", values), tmp_path / "run")
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_an_agent_of_one_kind_of_task_plays_on_other_levels(tmp_path):
    trained = {"environment.name": MIXED, "environment.babyai_text.kind": "goto"}
    agent = str(tmp_path / "agent")
    untrained.write(tmp_path / "agent", "symbolic", {"reward.intrinsic_coefficient": 0.0, **trained})
    for other, left in ((MIXED, {"goto"}), ("BabyAI-GoToRedBallGrey-v0", set()), (None, {"goto"})):
        config = load_config("test_language_agent")
        config.policy, config.environment.name = agent, other
        base = eval_agents.open_agent(values(LevelPolicy, config)).base
        assert (base.environment, {base.options.get("kind")} - {None}) == (other or MIXED, left)
        setup = evaluation_setup.open_setup(evaluation_setup.of_folder(agent, environment=other))
        assert (setup.environment, {setup.options.get("kind")} - {None}) == (other or MIXED, left)
        collecting = load_config("collect_trajectories")
        collecting.policy, collecting.environment.name = agent, other
        collect_trajectories.check(collecting, tmp_path / "none")
