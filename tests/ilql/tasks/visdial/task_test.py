"""Visual dialogue: rewards of records and of play, stops, the other side, and files."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.tasks.contract import FunctionPolicy, interact
from motif_jax.ilql.tasks.visdial.data import Features, Scene
from motif_jax.ilql.tasks.visdial.environment import YES_NO, Rules, VisDialEnvironment
from motif_jax.ilql.tasks.visdial.environment import recorded as recorded_of
from motif_jax.ilql.tasks.visdial.task import VisDial
from tests.envs import playing
from tests.ilql.tasks.visdial import made_up

recorded = functools.partial(playing.recorded, "visdial")


def rewards_of(files, **options):
    """The rewards of the questions of each recorded dialogue."""
    return [
        [reward for reward in dialogue.rewards if reward is not None]
        for dialogue in recorded({**files, **options})
    ]


# The goal is reached at the third answer, never, and at the tenth.
TO_THE_GOAL = [[-1.0, -1.0, 0.0], [-1.0] * 10, [-1.0] * 9 + [0.0]]


def test_each_question_costs_one_until_the_goal(files):
    dialogues = recorded(files)

    assert rewards_of(files) == TO_THE_GOAL
    assert dialogues[0].texts == (
        "picture 0",
        "what 0?",
        "yes",
        "what 1?",
        "No",
        "what 2?",
        "a red one",
    )
    assert [dialogue.meta for dialogue in dialogues] == [{"image": 0}, {"image": 1}, {"image": 2}]
    assert all(dialogue.terminal for dialogue in dialogues)


def test_the_published_tenth_turn_costs_nothing(files):
    assert rewards_of(files, last_turn_free=True) == [
        TO_THE_GOAL[0],
        TO_THE_GOAL[2],
        TO_THE_GOAL[2],
    ]


def test_a_lower_goal_may_be_reached_at_the_same_answer(files):
    # 0.75 of the 0.4 from 0.5 to 0.9 are reached by the progress 0.4 of three answers.
    assert rewards_of(files, goal=0.9, percentile=0.75) == TO_THE_GOAL


@pytest.mark.parametrize(
    ("yes_no", "turns"),
    [
        ("none", []),
        # 'yes' and 'No' exactly.
        ("hard", [0, 1, 6, 9]),
        # also "I don't know" and 'now and then', which have a no.
        ("soft", [0, 1, 3, 4, 6, 9]),
        ("conservative", [0, 1, 3, 4, 6, 9]),
    ],
)
def test_answers_of_yes_or_no_cost_more(files, yes_no, turns):
    costs = [-2.5 if turn in turns else 0.0 for turn in range(10)]

    rewards = rewards_of(files, yes_no=yes_no, yes_no_reward=-2.5)

    expected = [
        [reward + cost for reward, cost in zip(dialogue, costs, strict=False)]
        for dialogue in TO_THE_GOAL
    ]
    assert rewards == expected


@pytest.mark.parametrize(
    ("answer", "costs"), [("maybe", True), ("looks red", True), ("red", False)]
)
def test_conservative_answers_have_a_key_word(answer, costs):
    assert YES_NO["conservative"](answer) == costs
    assert not YES_NO["soft"](answer)


def test_ten_turns_are_paid_their_scaled_and_shifted_progress(files):
    rewards = rewards_of(files, mode="10_stop", reward_scale=10.0, reward_shift=-1.0)

    for paid, (_, *progress) in zip(rewards, made_up.CACHE, strict=True):
        assert paid == pytest.approx([10.0 * gain - 1.0 for gain in progress])


def test_an_agent_may_stop_after_every_turn(files):
    dialogues = recorded({**files, "mode": "agent_stops"})

    assert len(dialogues) == made_up.DIALOGUES * 11
    for number, dialogue in enumerate(dialogues):
        image, turns = divmod(number, 11)
        progress = made_up.CACHE[image][1 : turns + 1]
        paid = [reward for reward in dialogue.rewards if reward is not None]
        assert dialogue.meta == {"image": image}
        assert dialogue.terminal
        if turns < 10:
            assert dialogue.texts[-1] == "<stop>"
            assert paid == [*progress, 0.0]
        else:
            assert dialogue.texts[-1] == "no"
            assert paid == progress


@pytest.mark.parametrize(
    "rules", [{"mode": "env_stops", "yes_no": "hard"}, {"mode": "10_stop"}], ids=str
)
@pytest.mark.parametrize("row", range(made_up.DIALOGUES))
def test_play_is_paid_as_the_record_is(files, rules, row):
    task = VisDial({**files, **rules})
    reader = FunctionPolicy(lambda observation, _: f"what {len(observation.talk.answers)}?")
    other = made_up.Scripted(made_up.CACHE[row][1:])
    environment = VisDialEnvironment([task.scenes[row]], task.features, other, task.rules)

    episode = interact(environment, reader, np.random.default_rng(0))

    assert episode.observation.to_sequence() == recorded({**files, **rules})[row]
    with pytest.raises(ValueError, match="ended"):
        environment.step("more?")


def test_the_other_side_hears_the_history_with_the_picture(files):
    task = VisDial(files)
    other = made_up.Scripted(made_up.CACHE[1][1:])
    environment = VisDialEnvironment([task.scenes[1]], task.features, other, task.rules)
    environment.reset(np.random.default_rng(0))
    for question in ("what?", "who?"):
        environment.step(question)

    history, caption, features = other.heard[1]
    assert history == [
        {"speaker": "question", "text": "what?"},
        {"speaker": "answer", "text": "yes"},
        {"speaker": "question", "text": "who?"},
    ]
    assert caption == "picture 1"
    np.testing.assert_allclose(features, task.features[1])


SCALED = {"yes_no": "hard", "yes_no_reward": -2.0, "reward_scale": 10.0, "reward_shift": 0.5}


def test_rewards_of_env_stops_are_scaled_and_shifted_in_play(files):
    task = VisDial({**files, **SCALED})
    environment = VisDialEnvironment(
        task.scenes[:1], task.features, made_up.Scripted([0.1, 0.9]), task.rules
    )
    environment.reset(np.random.default_rng(0))

    rewards = [environment.step("what?").reward for _ in range(2)]

    # Both answers are a yes or a no; the second reaches the goal.
    assert rewards == [10.0 * (-1.0 - 2.0) + 0.5, 10.0 * -2.0 + 0.5]


def test_recorded_rewards_of_env_stops_are_not_scaled(files):
    unscaled = {**SCALED, "reward_scale": 1.0, "reward_shift": 0.0}

    assert rewards_of(files, **SCALED) == rewards_of(files, **unscaled)


@pytest.fixture
def environment(files):
    """A dialogue in which the agent may stop."""
    task = VisDial(files)
    other = made_up.Scripted([0.5] * 10)
    environment = VisDialEnvironment(task.scenes, task.features, other, Rules(mode="agent_stops"))
    environment.reset(np.random.default_rng(0))
    return environment


def test_stop_ends_a_dialogue_without_a_reward(environment):
    outcome = environment.step(" <stop>")

    assert outcome.terminal
    assert outcome.reward == 0
    assert outcome.observation.to_sequence().texts[-1] == "<stop>"


def test_a_dialogue_continues_from_an_observation(environment):
    middle = environment.step("what?").observation

    environment.reset(np.random.default_rng(1), middle)

    texts = environment.step("and?").observation.to_sequence().texts
    assert texts[1] == "what?"
    assert texts[3] == "and?"


@pytest.mark.parametrize(("gain", "is_reached"), [(0.125, True), (0.124, False)])
def test_the_goal_is_half_of_the_possible_progress(gain, is_reached):
    assert Rules().reached(0.5, [0.125, gain]) == is_reached


SCENE = Scene("c", ("what?", "who?"), ("red", "no"), None, None, 3)


def test_a_scene_without_values_is_recorded_whole():
    (observation,) = recorded_of(SCENE, Rules())

    texts = ("c", "what?", "red", "who?", "no")
    assert observation.to_sequence() == (texts, (None, -1.0, None, -1.0, None), False, {"image": 3})


def test_a_scene_may_end_at_its_first_answer():
    (observation,) = recorded_of(SCENE._replace(progress=(0.5, 0.0)), Rules())

    assert observation.to_sequence() == (
        ("c", "what?", "red"),
        (None, 0.0, None),
        True,
        {"image": 3},
    )


def test_the_other_side_values_a_scene_without_values():
    other = made_up.Scripted([0.3, 0.075])
    environment = VisDialEnvironment([SCENE], {3: np.ones(2)}, other, Rules())

    assert environment.reset(np.random.default_rng(0)).talk.initial == 0.25
    # Half of the progress from 0.25 to 1 is reached by the second answer.
    assert [environment.step("so?")[1:] for _ in range(2)] == [(-1.0, False), (0.0, True)]


def test_texts_may_be_numbered_as_visdial_publishes_them(tmp_path, files):
    numbered = {"caption": "c", "dialog": [{"question": 1, "answer": 0}]}
    published = {"questions": ["is it", "what"], "answers": ["no", "a dog"], "dialogs": [numbered]}
    (tmp_path / "n.json").write_text(json.dumps({"data": published}))

    (scene,) = VisDial({**files, "reward_cache": "", "data": str(tmp_path / "n.json")}).scenes

    assert scene == Scene("c", ("what?",), ("no",), None, None, 0)


@pytest.fixture
def served(files):
    """A task with a server's address, and a scripted other side in its place."""
    task = VisDial({**files, "reward_cache": "", "url": "http://127.0.0.1:1/step"})
    task.other_side = made_up.Scripted([])
    return task


# The initial value and that after each answer, from the scripted other side.
VALUES = [0.25, *(turns / 50 for turns in range(1, 11))]


def test_dialogues_of_a_reward_cache_have_the_other_sides_values(served):
    dialogues = served.stream("reward_cache", "")(np.random.default_rng(0), 5, 1)

    assert [dialogue.meta for dialogue in dialogues] == [
        {"image": image, "values": VALUES} for image in (1, 2)
    ]
    assert dialogues[0].texts[:2] == ("picture 1", "what 0?")


def test_a_reward_cache_is_a_list_of_values(served, tmp_path):
    dialogues = served.stream("reward_cache", "")(np.random.default_rng(0), 5, 1)
    dialogue_files.write(tmp_path / "dialogues.parquet", [dialogues], {})

    served.finish("reward_cache", tmp_path)

    assert json.loads((tmp_path / "reward_cache.json").read_text()) == [VALUES, VALUES]


def test_a_remote_policy_asks_the_server_s_questions(served):
    observation = served.environment().reset(np.random.default_rng(0))

    assert served.policy(" remote").act(observation, np.random.default_rng(0)) == "question 0?"


def test_recorded_dialogues_are_counted_and_games_are_endless(served, files):
    assert [served.count(kind) for kind in served.kinds] == [3, None, 3]
    assert [served.dialogues_per_draw(kind) for kind in served.kinds] == [1024, 8, 8]
    assert VisDial(files).failures() == 0


def test_an_address_of_a_server_loses_its_route(served):
    assert served.options["url"] == "http://127.0.0.1:1"


@pytest.mark.parametrize("normalise", [True, False])
def test_features_are_divided_by_their_length(tmp_path, normalise):
    rows = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    np.savez(tmp_path / "f.npz", images_val=rows)

    features = Features(str(tmp_path / "f.npz"), "val", normalise)

    assert len(features) == 2
    assert features[0].dtype == np.float64
    # A row of zeros has no length.
    expected = [[0.6, 0.8], [0.0, 0.0]] if normalise else rows.tolist()
    assert [features[row].tolist() for row in (0, 1)] == expected


def test_features_are_read_from_hdf5(files):
    features = Features(files["features"], "train")

    for row, values in enumerate(np.arange(12.0).reshape(3, 4)):
        np.testing.assert_allclose(features[row], values / np.linalg.norm(values))
