"""Setups of played policies: which policy a config names, its environment and options, what is
refused.
"""

from __future__ import annotations

import pytest

from motif_jax.core.errors import UserError
from motif_jax.play import evaluation_setup
from motif_jax.play.config import PlayedPolicy
from motif_jax.rl.actors.policies import BotPolicy, FixedPolicy, RandomPolicy
from motif_jax.schema import read_section
from tests.reward_fixtures import load_config
from tests.toys import Flyer

pytestmark = pytest.mark.usefixtures("run")

CORRIDOR = "tests.toys:Corridor"
LEVEL = "BabyAI-GoToLocal-v0"
AGENT = {"agent.dir": "run", "environment.name": None, "environment.max_episode_steps": None}


def played(**changes):
    return read_section(
        PlayedPolicy, load_config("evaluate", "smoke", {"environment.name": CORRIDOR, **changes})
    )


@pytest.mark.parametrize(
    ("changes", "policy", "environment", "options"),
    [
        ({}, RandomPolicy, CORRIDOR, {"max_episode_steps": 200}),
        ({"environment.name": None}, RandomPolicy, "NetHackScore-v1", {"max_episode_steps": 200}),
        ({"environment.max_episode_steps": 7}, RandomPolicy, CORRIDOR, {"max_episode_steps": 7}),
        ({"policy": "tests.toys:Flyer"}, Flyer, CORRIDOR, {"max_episode_steps": 200}),
        (
            {"policy": "tests.toys:Flyer", "greedy": True},
            Flyer,
            CORRIDOR,
            {"max_episode_steps": 200},
        ),
        (
            {"policy": "bot", "environment.name": LEVEL},
            BotPolicy,
            LEVEL,
            {"max_episode_steps": 200, "fields": ["bot_action"]},
        ),
        (
            {"bot_agreement": True, "environment.name": LEVEL},
            RandomPolicy,
            LEVEL,
            {"max_episode_steps": 200, "fields": ["bot_action"]},
        ),
        (
            {"environment.name": LEVEL, "environment.change": "other_episode"},
            RandomPolicy,
            LEVEL,
            {"max_episode_steps": 200, "change": "other_episode"},
        ),
        (
            {
                "environment.name": "NetHackScore-v1",
                "compat.sober_mask": True,
                "compat.crop_row_offset": True,
            },
            RandomPolicy,
            "NetHackScore-v1",
            {
                "max_episode_steps": 200,
                "compat": {"sober_mask": True, "crop_row_offset": True},
            },
        ),
    ],
)
def test_a_setup_without_an_agent_follows_the_config(changes, policy, environment, options):
    setup = evaluation_setup.check(played(**changes))

    assert isinstance(setup.policy, policy)
    assert setup.plan == {
        "policy": changes.get("policy", "random"),
        "checkpoint": None,
        "environment": environment,
        "options": options,
        "reward": None,
    }
    assert (setup.rater, setup.digests) == (None, {})


def test_a_fixed_policy_keeps_its_pinned_shares():
    shares = (0.5, 0.25, 0.25, 0.0, 0.0, 0.0)
    config = played(policy="fixed", **{"environment.name": LEVEL})

    setup = evaluation_setup.check(config, evaluation_setup.PinnedVersions(shares=shares))

    assert setup.policy == FixedPolicy(shares)
    assert setup.plan["shares"] == shares


@pytest.mark.parametrize("name", ["NetHackScore-v1", "NetHackStaircase-v1"])
def test_a_random_policy_is_rated_by_an_agents_reward(run, name):
    setup = evaluation_setup.check(played(**AGENT | {"environment.name": name}))

    assert isinstance(setup.policy, RandomPolicy)
    assert setup.environment == name
    # Without the switches of training alone.
    assert setup.options == {"max_episode_steps": 100, "compat": {"sober_mask": True}}
    assert setup.rater.description == f"table of 1 texts, {run}/table.json"
    assert setup.rater.count_exponent == 2.0
    assert setup.plan["reward"]["table"] == f"{run}/table.json"
    assert setup.plan["reward"]["intrinsic_coefficient"] == 0.1
    assert list(setup.digests) == ["reward"]


def test_an_agents_value_of_a_reward_key_may_be_repeated():
    setup = evaluation_setup.check(played(**AGENT, **{"reward.count_exponent": 2.0}))

    assert setup.rater.count_exponent == 2.0


def test_an_empty_folder_of_a_reward_leaves_the_agents_out():
    setup = evaluation_setup.check(played(**AGENT, **{"reward.dir": ""}))

    assert (setup.rater, setup.plan["reward"], setup.digests) == (None, None, {})


def test_an_environment_of_the_same_family_takes_a_runs_options():
    other = "tests.toys:OtherHorizonCorridor"

    setup = evaluation_setup.check(
        played(**AGENT | {"agent.dir": "horizon", "environment.name": other})
    )

    assert (setup.environment, setup.options) == (other, {"max_episode_steps": 12})
    assert setup.spec.observation["tokens"].shape == (12,)


@pytest.mark.parametrize("name", ["a:b", "at:12"])
def test_a_folder_whose_name_has_a_colon_is_no_class(run, name):
    (run / name).mkdir()

    with pytest.raises(UserError) as error:
        evaluation_setup.check(played(policy=name))

    assert str(error.value) == f"{name} is not a run folder: it has no config.json"


def test_a_reward_rewritten_since_the_runs_start_is_refused():
    pins = evaluation_setup.PinnedVersions(digests={"reward": "x"})

    with pytest.raises(UserError) as error:
        evaluation_setup.check(played(**AGENT), pins)

    assert str(error.value) == (
        "config.reward=table: was trained or written again since the run started: "
        "restore the previous one, or choose another --workdir"
    )
