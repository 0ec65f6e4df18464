"""Agents of environments with arguments and wrappers: they play in those of their training unless
the config has others.
"""

from __future__ import annotations

import functools

import pytest

from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.play import agent_policy, agents, evaluation_files, evaluation_setup
from motif_jax.play.config import PlayedPolicy
from motif_jax.schema import read_section
from tests.reward_fixtures import load_config, run_stage

LAKE = "gym:FrozenLake-v1"
FIRM = {"is_slippery": False}
STACKED = "tests.gym_toys:two_observations"


@pytest.fixture
def lake(tmp_path):
    """The folder of an agent of ice that is not slippery, with two observations."""
    changes = {
        "environment.name": LAKE,
        "environment.kwargs": '{"is_slippery": false}',
        "environment.wrappers": STACKED,
    }
    config = load_config("train_agent", "recall", changes)
    run_folder.describe(tmp_path / "lake", run_folder.as_plain(config))
    return tmp_path / "lake"


def setup_of(folder, **changes):
    config = load_config("evaluate", "", {"agent.dir": folder and str(folder), **changes})
    return evaluation_setup.check(read_section(PlayedPolicy, config))


def test_an_agent_plays_with_the_arguments_of_its_training(lake):
    setup = setup_of(lake)

    assert (setup.options["kwargs"], setup.options["wrappers"]) == (FIRM, STACKED)
    assert setup.plan["options"] == setup.options


def test_an_agent_plays_with_the_arguments_of_the_config(lake):
    setup = setup_of(lake, **{"environment.kwargs": "{}"})

    assert "kwargs" not in setup.options
    assert setup.options["wrappers"] == STACKED


def test_an_agent_keeps_its_arguments_where_the_spaces_are_equal(lake):
    setup = setup_of(
        lake,
        **{"environment.name": "gym:FrozenLake8x8-v1", "environment.kwargs": '{"map_name": "4x4"}'},
    )

    assert setup.options["kwargs"] == {"map_name": "4x4"}
    assert setup.spec.observation["observation"].shape == (32,)


@pytest.mark.parametrize(
    ("key", "value"),
    [("environment.kwargs", '{"map_name": "8x8"}'), ("environment.wrappers", "")],
)
def test_other_spaces_than_the_agents_are_refused(lake, key, value):
    with pytest.raises(
        UserError, match=rf"config.{key}='{value}': must be such that {LAKE} has the fields"
    ):
        setup_of(lake, **{key: value})


@pytest.mark.parametrize(
    ("key", "value"), [("environment.text", "obs:mission"), ("environment.text_bytes", 64)]
)
def test_a_text_that_changes_what_an_agent_sees_is_refused(tmp_path, key, value):
    """'obs:mission' takes the field out of the observation, and `text_bytes` is the size of texts
    in it.
    """
    task = {"environment.name": "gym:MiniGrid-Empty-5x5-v0", "environment.modules": "minigrid"}
    run_folder.describe(tmp_path, run_folder.as_plain(load_config("train_agent", "recall", task)))

    with pytest.raises(
        UserError, match=rf"config\.{key}=.*: must be such that gym:MiniGrid-Empty-5x5-v0 has"
    ):
        setup_of(tmp_path, **{key: value})


def test_a_player_without_training_plays_the_games_of_agents(tmp_path):
    name = {"environment.name": "gym:CartPole-v1"}
    training = load_config("train_agent", "recall", name)
    run_folder.describe(tmp_path / "agent", run_folder.as_plain(training))
    agents_own = setup_of(tmp_path / "agent", policy="random")
    without_agent = setup_of(None, policy="random", **name)
    rows = [{"seed": 1, "return": 2.0}]

    games = [
        evaluation_files.games({"plan": setup.plan, "rows": rows}, "return")
        for setup in (agents_own, without_agent)
    ]

    assert without_agent.options["max_episode_steps"] == 5000
    assert games[0] == games[1]


def test_another_environment_is_made_by_the_flags_of_the_evaluation(lake):
    """Not by the training's, which it need not take."""
    (lake / "checkpoints").mkdir()
    load = functools.partial(agent_policy.load, str(lake), "0", "gym:ToyIce-v0")
    elsewhere = {"modules": "tests.gym_toys", "wrappers": STACKED, "text": "", "text_bytes": 256}

    with pytest.raises(TypeError, match="is_slippery"):
        load()

    assert load(elsewhere)[1] == 0


def test_an_agent_plays_the_values_and_masks_of_its_training(tmp_path):
    changes = {
        "environment.name": "gym:ToyGates-v0",
        "environment.modules": "tests.gym_toys",
        "environment.action_mask": "info:allowed",
    }
    run_folder.describe(
        tmp_path, run_folder.as_plain(load_config("train_agent", "recall", changes))
    )

    setup = setup_of(tmp_path)

    assert setup.options["action_mask"] == "info:allowed"
    assert setup.spec.mask_field == "action_mask"
    with pytest.raises(UserError, match="action_mask='': must be such that gym:ToyGates"):
        setup_of(tmp_path, **{"environment.action_mask": ""})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("environment.kwargs", '{"is_slippery": true}'),
        ("environment.wrappers", "gymnasium.wrappers:Autoreset"),
        ("environment.action_mask", "info:mask"),
    ],
)
def test_a_run_goes_on_in_no_other_environment(lake, key, value):
    config = load_config("train_agent", "recall", {"environment.name": LAKE, key: value})

    with pytest.raises(UserError, match=key):
        run_folder.check_identity(lake, config, ("environment",))


@pytest.mark.extra
def test_games_of_a_wrapped_environment_are_filmed_again(tmp_path):
    vault = {
        "environment.name": "gym:ToyVault-v0",
        "environment.modules": "tests.gym_toys",
        "environment.wrappers": STACKED,
    }
    run_stage("evaluate", tmp_path / "games", episodes=2, workers=1, **vault)

    run_stage(
        "visualize",
        tmp_path / "films",
        **{"recorded.evaluation": str(tmp_path / "games"), "recorded.episodes": "0,1"},
    )

    films = sorted(path.name for path in (tmp_path / "films").glob("*.html"))
    assert films == ["episode-00000.html", "episode-00001.html"]


def test_a_collection_sets_the_arguments_of_its_agents(lake):
    agent = agents.CollectingAgent(str(lake), 0)

    agents.require_fit(agent, LAKE, {"kwargs": FIRM, "wrappers": STACKED})
    # Another value is the user's choice, where the agent can play it.
    agents.require_fit(agent, LAKE, {"kwargs": {"is_slippery": True}, "wrappers": STACKED})
    with pytest.raises(UserError) as error:
        agents.require_fit(agent, LAKE, {"wrappers": STACKED})
    assert str(error.value) == (
        f"config.environment.kwargs: must be set, since {lake} was trained with it: "
        """--config.environment.kwargs='{"is_slippery": false}'"""
    )


@pytest.mark.parametrize("kwargs", [{"map_name": "8x8"}, {"map_name": "8x8", "is_slippery": False}])
def test_a_collection_of_other_fields_than_the_agents_is_refused(lake, kwargs):
    agent = agents.CollectingAgent(str(lake), 0)

    with pytest.raises(
        UserError, match=f"config.environment.name='{LAKE}': must be .* with the fields"
    ):
        agents.require_fit(agent, LAKE, {"kwargs": kwargs, "wrappers": STACKED})


@pytest.mark.parametrize(
    ("trained_on", "played_on"),
    [
        ("Recall-v0", "NetHackScore-v1"),
        ("NetHackScore-v1", "MiniGrid-DoorKey-5x5-v0"),
        (LAKE, "Recall-v0"),
    ],
)
def test_a_collection_in_another_kind_of_game_is_refused(tmp_path, trained_on, played_on):
    config = load_config("train_agent", "recall", {"environment.name": trained_on})
    run_folder.describe(tmp_path / "agent", config.to_dict())
    agent = agents.CollectingAgent(str(tmp_path / "agent"), 0)

    with pytest.raises(
        UserError, match=rf"config\.environment\.name='{played_on}': must be {trained_on}, or of"
    ):
        agents.require_fit(agent, played_on, {})


def test_a_collection_in_another_task_of_the_game_is_accepted(tmp_path):
    config = load_config("train_agent", "recall", {"environment.name": "NetHackScore-v1"})
    run_folder.describe(tmp_path / "agent", config.to_dict())

    agents.require_fit(
        agents.CollectingAgent(str(tmp_path / "agent"), 0), "NetHackStaircase-v1", {}
    )
