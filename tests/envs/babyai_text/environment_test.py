"""Levels as environments: what is written, how episodes end, what is refused."""

from __future__ import annotations

import itertools
from unittest.mock import Mock

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from motif_jax.core import seeds
from motif_jax.envs import registry
from motif_jax.envs.babyai_text import bot, catalogue
from motif_jax.envs.babyai_text.catalogue import ACTIONS, KINDS, LEVELS
from motif_jax.envs.babyai_text.environment import PROMPT_BYTES, decoded, encoded
from motif_jax.envs.babyai_text.instructions import numbered
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED
from tests.envs.playing import error_line, started
from tests.lm import talkers

TRAIN = "BabyAI-MixedTrainLocal-v0"
LOCAL = "BabyAI-GoToLocal-v0"


def bot_plays(env, out):
    steps = [(0.0, RUNNING)]
    while steps[-1][1] == RUNNING:
        steps.append(env.step(int(out["bot_action"]), out))
    return steps[1:]


def test_the_bot_solves_every_kind_for_less_with_more_steps():
    for kind in KINDS:
        env, out = started(TRAIN, 7, kind=kind, fields=("bot_action",))
        steps = bot_plays(env, out)
        info = env.episode_info()
        wanted = pytest.approx(1 - 0.9 * len(steps) / info["limit"])
        assert steps == [(0.0, RUNNING)] * (len(steps) - 1) + [(wanted, TERMINATED)]
        assert (info["return"], info["success"], KINDS[int(info["kind"])]) == (wanted, 1.0, kind)
        assert info["length"] == len(steps)


def test_a_bot_that_fails_says_nothing_any_more(monkeypatch):
    env, out = started(LOCAL, 3, fields=("bot_action",))
    assert out["bot_action"] < len(ACTIONS)
    monkeypatch.setattr(bot.BabyAIBot, "replan", Mock(side_effect=AssertionError))
    env.step(0, out)
    assert out["bot_action"] == bot.NO_ANSWER == 255
    monkeypatch.undo()
    env.step(0, out)
    assert out["bot_action"] == 255


def test_a_bot_is_silent_where_its_action_is_not_played():
    """It walks, and its players can only turn."""
    env, out = started(LOCAL, 3, fields=("bot_action",), actions=("turn left", "turn right"))
    answers = {int(out["bot_action"])}
    for _ in range(4):
        env.step(0, out)
        answers.add(int(out["bot_action"]))

    assert bot.NO_ANSWER in answers
    assert answers <= {0, 1, bot.NO_ANSWER}


def test_limits_truncate_and_success_on_the_last_step_is_success():
    shown = {"fields": ("bot_action",)}
    needed = len(bot_plays(*started(LOCAL, 3, **shown)))
    assert bot_plays(*started(LOCAL, 3, **shown, max_episode_steps=needed))[-1][1] == TERMINATED
    env, out = started(LOCAL, 3, **shown, max_episode_steps=needed - 1)
    assert bot_plays(env, out)[-1] == (0.0, TRUNCATED)
    assert env.episode_info()["success"] == 0
    env, out = started(LOCAL, 3)
    ends = [env.step(0, out)[1] for _ in range(64)]
    assert ends == [RUNNING] * 63 + [TRUNCATED]


def test_every_kind_is_drawn_from_some_seed():
    drawn = {started(TRAIN, seed)[0].episode_info()["kind"] for seed in range(40)}
    assert drawn == set(range(len(KINDS)))


@pytest.mark.parametrize("kind", ["open", "goto"])
def test_people_see_the_grid_with_the_agent_and_its_prompt(kind):
    drawer = registry.renderer(registry.spec(TRAIN))
    _, out = started(TRAIN, 4, kind=kind, fields=drawer.fields)

    frame = drawer.frame(out)

    assert chr(frame.chars[frame.cursor]) in ">v<^"
    rows = [bytes(row).decode("latin-1") for row in frame.chars]
    assert any("# # #" in row for row in rows)
    assert any(door in "".join(rows) for door in "X+/") == (kind == "open")
    assert frame.picture.dtype == np.uint8


def test_unknown_fields_are_refused_and_limits_are_inclusive():
    with pytest.raises(ValueError, match=r"^BabyAI-GoToLocal-v0 has no fields a, x"):
        registry.spec(LOCAL, fields=("x", "prompt", "a"), distractors=20, observations=1)


def test_a_text_of_more_bytes_than_its_field_is_refused():
    assert encoded("é", 3, "a text").tolist() == [0xC3, 0xA9, 0]
    assert error_line(encoded, "abc", 2, "a text") == "a text has 3 bytes, more than 2: 'abc'"


def test_a_mission_has_at_most_eighty_words():
    assert numbered("go " * 80).tolist() == [1] * 80
    assert error_line(numbered, "go " * 81).startswith(
        "a mission has 81 words, more than 80: 'go go "
    )


FRENCH = {
    "language": "french",
    "kind": "pick up seq go to",
    "change": "no_meaning_nouns",
    "fields": ("prompt",),
}
PUBLISHED = {"glam_french_goal": True, "drrn_first_observation": True}


def test_a_french_level_speaks_french_in_goal_and_view():
    _, out = started(TRAIN, 0, **FRENCH)

    _, goal, *views = decoded(out["prompt"]).split("\n")
    assert goal == " But de l'agent: ramasser la afze grise, puis aller à la dax grise "
    assert views[0].startswith(" Observation 0: Tu vois un mur à 2 pas devant, ")
    assert decoded(out["mission"]) == "pick up the grey box, then go to the grey key"


def test_compat_has_french_goals_and_no_first_view_as_released():
    env, out = started(TRAIN, 0, **{**FRENCH, "compat": PUBLISHED})
    assert decoded(out["prompt"]).endswith("\n But de l'agent: aller à la afze grise")

    env.step(0, out)

    assert " Observation 0: " in decoded(out["prompt"])
    assert " Observation 1: " not in decoded(out["prompt"])


def test_names_of_actions_stand_in_the_prompt():
    env, out = started(LOCAL, 0, fields=("prompt",), actions=(*ACTIONS, "wait", "think"))

    assert env.spec.num_actions == 8
    assert decoded(out["prompt"]).startswith(
        "Possible action of the agent: turn left, turn right, go forward, pick up, drop, toggle, wait, think \n"
    )


def test_a_fixed_kind_is_played_to_its_limit():
    env, out = started(TRAIN, 4, kind="open", max_episode_steps=3)

    assert decoded(out["mission"]).startswith("open ")
    assert [env.step(0, out) for _ in range(3)] == [(0.0, RUNNING)] * 2 + [(0.0, TRUNCATED)]


@pytest.mark.parametrize("distractors", [1, 2])
def test_a_level_has_the_objects_that_are_asked_for(distractors):
    _, out = started("BabyAI-GoToMedium-v0", 0, fields=("grid",), distractors=distractors)

    keys_balls_boxes = np.isin(out["grid"][..., 0], [5, 6, 7])
    assert keys_balls_boxes.sum() == distractors


@pytest.mark.parametrize("name", LEVELS)
def test_every_level_begins_with_a_mission_and_a_lit_agent(name):
    for seed in (5, 6):
        env, out = started(name, seed, fields=("grid", "lit", "pose"))
        column, row, _ = out["pose"].tolist()
        width, height = out["lit"].shape

        assert decoded(out["mission"])
        assert decoded(out["text"]).startswith(("You see ", "Tu vois "))
        assert 0 < column < width - 1
        assert 0 < row < height - 1
        assert out["lit"].any()
        assert env.episode_info()["limit"] > 0


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ((TRAIN, LOCAL), {"change": "x"}),
        ((TRAIN, TRAIN), {"kind": "open", "distractors": 1, "change": "x"}),
        (("a", TRAIN), {"kind": "open", "distractors": 1, "change": "x"}),
    ],
)
def test_options_of_one_level_are_left_out_in_another(names, options):
    chosen = {"kind": "open", "distractors": 1, "change": "x"}

    assert catalogue.options_elsewhere(chosen, *names) == options


def test_a_prompt_has_room_for_the_asked_number_of_observations():
    options = {"fields": ("prompt",), "observations": 60, "actions": ("gå", *ACTIONS)}
    env, out = started("BabyAI-BossLevel-v0", 1, **options)
    lengths = [env.step(step % 2, out) and len(decoded(out["prompt"])) for step in range(60)]
    assert PROMPT_BYTES < max(lengths) < len(out["prompt"]) / 2
    assert "gå" in decoded(out["prompt"])
    assert registry.spec(LOCAL, fields=("prompt",)).observation["prompt"].shape == (PROMPT_BYTES,)


def test_published_each_environment_of_a_run_keeps_its_kind():
    published = {"glam_fixed_kind_per_env": True}

    def kinds_of(places, seeds=range(5)):
        group = registry.make_group(TRAIN, len(places), places, compat=published)
        kinds = [set() for _ in places]
        for seed, column in itertools.product(seeds, range(len(places))):
            group.start(column, seed)
            kinds[column].add(group.episode_info(column)["kind"])
        return kinds

    places = [seeds.derive(1, "place", env) for env in range(8)]
    kinds = kinds_of(places)
    assert all(len(of) == 1 for of in kinds)
    assert len(set().union(*kinds)) > 1
    assert kinds_of(places[3:5], range(90, 92)) == kinds[3:5]
    assert kinds_of([seeds.derive(2, "place", env) for env in range(8)], [0]) != kinds
    # Without numbers, as in evaluations, kinds are those of the seeds.
    for seed in range(5):
        plain, switched = (
            started(TRAIN, seed, **options)[0] for options in ({}, {"compat": published})
        )
        assert plain.episode_info() == switched.episode_info()


def test_a_tokenizer_writes_the_prompt_as_numbers(tmp_path):
    words = Tokenizer(models.WordLevel(dict(zip(talkers.WORDS, itertools.count())), "<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    words.save(str(tmp_path / "tokenizer.json"))
    options = {
        "tokenizer": str(tmp_path / "tokenizer.json"),
        "prompt_tokens": 300,
        "fields": ("prompt",),
    }

    _, with_end = started(LOCAL, 0, **options)
    _, without_end = started(LOCAL, 0, **options, special_tokens=False)
    _, text = started(LOCAL, 0, fields=("prompt",))

    expected = words.encode(decoded(text["prompt"]), add_special_tokens=False).ids
    assert without_end["tokens"][without_end["tokens"] >= 0].tolist() == expected
    assert with_end["tokens"][with_end["tokens"] >= 0].tolist() == [*expected, 1]
