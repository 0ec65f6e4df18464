"""Players of the tests of generalisation: which tests each takes, how long its prompts are, what is
refused.
"""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.glam import eval_agents
from motif_jax.glam.config import LevelPolicy
from motif_jax.glam.generalisation import CHOOSES_WORDS, READS
from motif_jax.lm.model import LanguageModel
from motif_jax.rl.actors.policies import BotPolicy, RandomPolicy
from motif_jax.schema import read_section
from tests.lm import talkers
from tests.play.outside_policies_test import LEVEL
from tests.reward_fixtures import load_config
from tests.toys import Stubborn

pytestmark = pytest.mark.usefixtures("run")

ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
TALKER = {"policy": "zero_shot", "network.model": "base", "network.prompt_tokens": 130}


def level_policy(**changes):
    return read_section(LevelPolicy, load_config("test_language_agent", "smoke", changes))


@pytest.fixture
def talker(run, monkeypatch):
    """An untrained language model that plays; its weights are zeros, so that nothing is
    compiled.
    """

    def zeros(settings):
        shapes = jax.eval_shape(LanguageModel(settings).init, jax.random.key(0))
        return lambda key: jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)

    monkeypatch.setattr(talkers, "initialiser", zeros)
    talkers.write(run / "base", "gpt2")
    level = {"environment.name": LEVEL, "environment.max_episode_steps": 20}
    return eval_agents.open_agent(
        level_policy(**TALKER, **level, **{"environment.babyai_text.observations": 1})
    )


@pytest.mark.parametrize(
    ("changes", "policy", "abilities"),
    [
        ({}, RandomPolicy, {CHOOSES_WORDS}),
        ({"policy": "bot"}, BotPolicy, set()),
        ({"policy": "tests.toys:Stubborn"}, Stubborn, set()),
    ],
)
def test_a_player_without_a_network_plays_the_mixed_level(run, changes, policy, abilities):
    player = eval_agents.open_pinned(level_policy(**changes), run)

    assert player.name == changes.get("policy", "random")
    assert player.base.environment == "BabyAI-MixedTrainLocal-v0"
    assert player.base.options["actions"] == ACTIONS
    assert player.base.options["max_episode_steps"] == 5000
    assert player.base.options.get("fields", []) == (["bot_action"] if policy is BotPolicy else [])
    assert isinstance(player.policy(player.base), policy)
    assert player.abilities == abilities
    assert (player.room, player.checkpoint, player.digests) == (None, None, {})


def test_a_player_plays_the_level_of_the_config(run):
    config = level_policy(**{"environment.name": LEVEL, "environment.max_episode_steps": 9})

    player = eval_agents.open_pinned(config, run)

    assert player.base.environment == LEVEL
    assert player.base.options["max_episode_steps"] == 9


def test_an_untrained_language_model_reads_prompts_up_to_its_room(talker):
    assert talker.name == "base before any training"
    assert talker.abilities == {READS, CHOOSES_WORDS}
    assert talker.room == 224
    assert talker.base.options["prompt_tokens"] == 130
    assert set(talker.digests) == {"tokenizer", "model"}


def names_of_tests(player, names, prompt_tokens=None):
    tests, left_out = player.takeable(names, [1, 2], "network.room", (), prompt_tokens)
    return [test.name for test, _ in tests], left_out


def test_a_player_without_text_takes_tests_of_changed_worlds():
    player = eval_agents.open_agent(level_policy())

    names, left_out = names_of_tests(player, ["all"])

    assert names == [
        "no_modification_test",
        "actions_3",
        "actions_9",
        "distractors_4",
        "distractors_16",
        "unseen_pairs",
        "PickUpSeqGoToLocal",
        "PickUpThenGoToLocal",
        "GoToAfterPickUpLocal",
        "PickUpSeqPickUpLocal",
    ]
    assert left_out == {}


def test_a_test_is_played_beside_the_one_without_a_change():
    player = eval_agents.open_agent(level_policy())

    tests, _ = player.takeable(["distractors_16"], [1, 2])

    (unchanged, base), (test, level) = tests
    assert (unchanged.name, test.name) == ("no_modification_test", "distractors_16")
    assert level.environment == base.environment
    assert level.options == base.options | {"distractors": 16}


def test_a_player_without_text_takes_no_test_of_reading():
    player = eval_agents.open_agent(level_policy())

    with pytest.raises(UserError) as error:
        player.takeable(["french", "all"], [1, 2])

    assert str(error.value) == (
        "config.tests='french': must be without french, which means nothing to a player that does not do this: "
        "reads the prompt"
    )


# The policy is made of weights that these tests do not read.
def without_policy(player):
    return dataclasses.replace(player, policy=lambda level: None)


READ_TESTS = [
    "other_name_same_categories",
    "adj_synonym",
    "no_meaning_nouns",
    "no_meaning_adj",
    "no_meaning_words",
    "change_intro_first_personne_speaker",
    "change_intro_first_personne_agent",
    "other_mission",
    "other_episode",
    "actions_3",
    "actions_9",
    "distractors_4",
]


@pytest.mark.slow
def test_a_language_model_takes_all_tests_that_fit_its_room(talker):
    names, left_out = names_of_tests(without_policy(talker), ["all"])

    assert names == ["no_modification_test", *READ_TESTS, "distractors_16", "french"]
    assert left_out["PickUpSeqPickUpLocal"] == (
        "config.network.room: a prompt of the test PickUpSeqPickUpLocal has 170 tokens, and 130 are allowed: "
        "raise it in another --workdir (if the model has the positions), or leave the test out of config.tests"
    )


@pytest.mark.slow
def test_words_that_the_tokenizer_does_not_distinguish_are_left_out(talker):
    _, left_out = names_of_tests(without_policy(talker), ["all"])

    assert "candidates ' take' and ' release' have the same tokens" in left_out["action_names"]


@pytest.mark.slow
def test_a_given_length_of_prompts_replaces_the_room_of_tests(talker):
    names, left_out = names_of_tests(without_policy(talker), ["french", "all"], prompt_tokens=150)

    assert names == [
        "no_modification_test",
        "french",
        *READ_TESTS,
        "PickUpThenGoToLocal",
        "GoToAfterPickUpLocal",
    ]
    assert "and 150 are allowed" in left_out["PickUpSeqPickUpLocal"]


@pytest.mark.parametrize(
    ("names", "prompt_tokens", "test", "tokens"),
    [(["distractors_16"], 150, "distractors_16", 218), (["all"], 100, "no_modification_test", 128)],
)
def test_a_named_test_or_base_beyond_the_room_is_refused(
    talker, names, prompt_tokens, test, tokens
):
    with pytest.raises(UserError) as error:
        names_of_tests(without_policy(talker), names, prompt_tokens)

    assert str(error.value).startswith(
        f"config.network.room: a prompt of the test {test} has {tokens} tokens, and {prompt_tokens} are allowed"
    )


def test_a_run_continues_with_its_first_player(tmp_path):
    config = level_policy()
    eval_agents.pin(tmp_path, eval_agents.open_pinned(config, tmp_path))

    assert eval_agents.open_pinned(config, tmp_path).name == "random"


def test_a_plan_with_other_files_is_refused(tmp_path):
    plan = {"checkpoint": None, "read": {"model": "x", "file": "y"}}
    (tmp_path / "plan.json").write_text(json.dumps(plan))

    with pytest.raises(UserError, match="random has another model and another file than when"):
        eval_agents.open_pinned(level_policy(), tmp_path)
