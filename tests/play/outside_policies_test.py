from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.glam import eval_agents
from motif_jax.glam.config import LevelPolicy
from motif_jax.glam.generalisation import CHOOSES_WORDS, READS
from motif_jax.lm.model import LanguageModel
from motif_jax.play import evaluation_setup
from motif_jax.play.config import PlayedPolicy
from motif_jax.play.policies import BotPolicy, FixedPolicy, RandomPolicy
from motif_jax.schema import read_section
from tests.lm import talkers
from tests.reward_fixtures import load_config
from tests.toys import Flyer, Stubborn

CORRIDOR = "tests.toys:Corridor"
LEVEL = "BabyAI-GoToLocal-v0"
AGENT = {"agent.dir": "run", "environment.name": None, "environment.max_episode_steps": None}
PROTOCOL = (
    "must be a class with in_workers=True, player() and probabilities(), or in_workers=False, initial_state() and act(), "
    "see motif_jax.play.policies"
)


@pytest.fixture(autouse=True)
def run(tmp_path, monkeypatch):
    """The agent runs `run`, of the game, and `horizon`, of cells as many as steps, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.json").write_text('{"a": 1.5}')
    rewarded = {
        "reward.kind": "table",
        "reward.table": f"{tmp_path}/table.json",
        "reward.count_exponent": 2.0,
        "reward.intrinsic_coefficient": 0.1,
        "compat.sober_mask": True,
        "compat.quantile_two_decimals": True,
    }
    cells = {"environment.name": "tests.toys:HorizonCorridor", "environment.max_episode_steps": 12}
    for name, variant, changes in (("run", "smoke", rewarded), ("horizon", "recall", cells)):
        config = load_config("train_agent", variant, changes)
        run_folder.describe(tmp_path / name, run_folder.as_plain(config))
    return tmp_path


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
        ({"policy": "tests.toys:Flyer", "greedy": True}, Flyer, CORRIDOR, {"max_episode_steps": 200}),
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
def test_a_random_policy_is_rated_by_the_reward_of_an_agent(run, name):
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


def test_an_agents_own_value_of_a_reward_key_may_be_given_again():
    setup = evaluation_setup.check(played(**AGENT, **{"reward.count_exponent": 2.0}))

    assert setup.rater.count_exponent == 2.0


def test_an_empty_folder_of_a_reward_leaves_the_agents_out():
    setup = evaluation_setup.check(played(**AGENT, **{"reward.dir": ""}))

    assert (setup.rater, setup.plan["reward"], setup.digests) == (None, None, {})


def test_an_environment_of_the_same_family_takes_the_options_of_a_run():
    other = "tests.toys:OtherHorizonCorridor"

    setup = evaluation_setup.check(played(**AGENT | {"agent.dir": "horizon", "environment.name": other}))

    assert (setup.environment, setup.options) == (other, {"max_episode_steps": 12})
    assert setup.spec.observation["tokens"].shape == (12,)


SETUPS_REFUSED = [
    (
        {"policy": "x"},
        "policy='x': must be random, fixed, bot, agent, the folder of an agent run, or module:Class",
    ),
    (
        {"policy": ""},
        "policy='': must be random, fixed, bot, agent, the folder of an agent run, or module:Class",
    ),
    ({"policy": "bot"}, f"policy='bot': must be another: {CORRIDOR} has no scripted player"),
    ({"policy": "tests.toys:HalfBot"}, f"policy='tests.toys:HalfBot': {PROTOCOL}"),
    ({"policy": "tests.toys:NoPolicy"}, f"policy='tests.toys:NoPolicy': {PROTOCOL}"),
    (
        {"bot_agreement": True},
        f"bot_agreement=True: must be another: {CORRIDOR} has no scripted player",
    ),
    (
        {"environment.change": "other_episode"},
        f"environment.change='other_episode': must be None: {CORRIDOR} is not BabyAI-Text, and only its prompts can be changed",
    ),
    (
        {"compat.sober_mask": True, "compat.crop_row_offset": True},
        f"compat.crop_row_offset, compat.sober_mask=True: must be off on {CORRIDOR}: only the game has published quirks",
    ),
    (
        {"greedy": True},
        "greedy=True: must be False: random chooses its actions itself, only a network's are drawn",
    ),
    (
        {"policy": "agent"},
        "agent.dir=None: must be a folder: give it with --config.agent.dir=DIR",
    ),
    ({"agent.checkpoint": "x"}, "agent.checkpoint='x': must be latest, best or a step"),
    ({"reward.dir": "nowhere"}, "reward.dir='nowhere': must be an existing folder"),
    (
        {"reward.step": 1, "environment.name": "NetHackScore-v1"},
        "reward.step=1: must be left at None, or given together with reward.dir",
    ),
    (
        AGENT | {"reward.quantile": 0.7},
        "reward.quantile=0.7: must be left at 0.5: the agent in run keeps its own 0.5; "
        "give --config.reward.dir=DIR to score otherwise",
    ),
    (
        AGENT | {"environment.name": "Recall-v0"},
        "environment.name='Recall-v0': must be NetHackScore-v1, or of its kind, with the same fields and actions: "
        "run was trained on NetHackScore-v1",
    ),
    (
        AGENT | {"agent.dir": "horizon", "environment.name": "Recall-v0"},
        "environment.name='Recall-v0': must be tests.toys:HorizonCorridor, or of its kind, with the same fields and "
        "actions: horizon was trained on tests.toys:HorizonCorridor",
    ),
]


@pytest.mark.parametrize(("changes", "line"), SETUPS_REFUSED)
def test_a_setup_that_cannot_be_played_is_refused(changes, line):
    with pytest.raises(UserError) as error:
        evaluation_setup.check(played(**changes))

    assert str(error.value) == f"config.{line}"


@pytest.mark.parametrize("name", ["a:b", "at:12"])
def test_a_folder_whose_name_has_a_colon_is_no_class(run, name):
    (run / name).mkdir()

    with pytest.raises(UserError) as error:
        evaluation_setup.check(played(policy=name))

    assert str(error.value) == f"{name} is not a run folder: it has no config.json"


def test_a_reward_that_was_written_again_since_a_run_started_is_refused():
    pins = evaluation_setup.PinnedVersions(digests={"reward": "x"})

    with pytest.raises(UserError) as error:
        evaluation_setup.check(played(**AGENT), pins)

    assert str(error.value) == (
        "config.reward=table: was trained or written again since the run started: "
        "restore the previous one, or choose another --workdir"
    )


ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
TALKER = {"policy": "zero_shot", "network.model": "base", "network.prompt_tokens": 130}


def level_policy(**changes):
    return read_section(LevelPolicy, load_config("test_language_agent", "smoke", changes))


@pytest.fixture
def talker(run, monkeypatch):
    """An untrained language model that plays; its weights are zeros, so that nothing is compiled."""

    def zeros(settings):
        shapes = jax.eval_shape(LanguageModel(settings).init, jax.random.key(0))
        return lambda key: jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)

    monkeypatch.setattr(talkers, "_initialiser", zeros)
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
    assert (player.room, player.checkpoint, player.read) == (None, None, {})


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
    assert set(talker.read) == {"tokenizer", "model"}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"policy": "x"},
            "policy='x': must be random, bot, zero_shot, the folder of an agent run, or module:Class",
        ),
        ({"policy": "run"}, "policy='run': must be an agent of BabyAI-Text, not of NetHackScore-v1"),
        (
            {"policy": "run", "agent.checkpoint": "x"},
            "agent.checkpoint='x': must be latest, best or a step",
        ),
        (
            {"greedy": True},
            "greedy=True: must be False: random chooses its actions itself, only a network's are drawn",
        ),
        ({"policy": "tests.toys:HalfBot"}, f"policy='tests.toys:HalfBot': {PROTOCOL}"),
    ],
)
def test_a_player_that_cannot_take_tests_is_refused(run, changes, line):
    with pytest.raises(UserError) as error:
        eval_agents.open_pinned(level_policy(**changes), run)

    assert str(error.value) == f"config.{line}"


def test_an_environment_that_is_no_level_is_refused(run):
    with pytest.raises(
        UserError, match=r"environment.name='Recall-v0': must be a level .*GoToLargeOpen-v0, or one"
    ):
        eval_agents.open_pinned(level_policy(**{"environment.name": "Recall-v0"}), run)


def names_of_tests(player, names, prompt_tokens=None):
    tests, left_out = player.takeable(names, [1, 2], "network.room", (), prompt_tokens)
    return [test.name for test, _ in tests], left_out


def test_a_player_that_reads_nothing_takes_the_tests_that_change_the_world():
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


def test_a_player_that_does_not_read_takes_no_test_of_reading():
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


def test_a_language_model_takes_all_tests_that_its_room_has_space_for(talker):
    names, left_out = names_of_tests(without_policy(talker), ["all"])

    assert names == ["no_modification_test", *READ_TESTS, "distractors_16", "french"]
    assert left_out["PickUpSeqPickUpLocal"] == (
        "config.network.room: a prompt of the test PickUpSeqPickUpLocal has 170 tokens, and 130 are allowed: "
        "raise it in another --workdir (if the model has the positions), or leave the test out of config.tests"
    )


def test_words_that_the_tokenizer_does_not_distinguish_are_left_out(talker):
    _, left_out = names_of_tests(without_policy(talker), ["all"])

    assert left_out["action_names"] == "candidates ' take' and ' release' have the same tokens"


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
def test_a_named_test_or_the_base_that_has_no_space_is_refused(talker, names, prompt_tokens, test, tokens):
    with pytest.raises(UserError) as error:
        names_of_tests(without_policy(talker), names, prompt_tokens)

    assert str(error.value).startswith(
        f"config.network.room: a prompt of the test {test} has {tokens} tokens, and {prompt_tokens} are allowed"
    )


def test_a_run_goes_on_with_the_player_that_it_began_with(tmp_path):
    config = level_policy()
    eval_agents.pin(tmp_path, eval_agents.open_pinned(config, tmp_path))

    assert eval_agents.open_pinned(config, tmp_path).name == "random"


@pytest.mark.parametrize(
    ("checkpoint", "digests", "line"),
    [
        ("best", {}, r"plan.json is damaged \(no checkpoint or no digests\): restore"),
        (None, [], r"plan.json is damaged \(no checkpoint or no digests\): restore"),
        (
            None,
            {"model": "x", "file": "y"},
            "random has another model and another file than when",
        ),
    ],
)
def test_a_plan_that_does_not_fit_the_player_is_refused(tmp_path, checkpoint, digests, line):
    (tmp_path / "plan.json").write_text(json.dumps({"checkpoint": checkpoint, "read": digests}))

    with pytest.raises(UserError, match=line):
        eval_agents.open_pinned(level_policy(), tmp_path)
