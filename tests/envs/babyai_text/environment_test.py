"""Levels as environments: what is written, how episodes end, what is refused."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest

from motif_jax.actors.group import place_numbers
from motif_jax.envs import registry
from motif_jax.envs.babyai_text import bot
from motif_jax.envs.babyai_text.catalogue import ACTIONS, KINDS
from motif_jax.envs.babyai_text.environment import PROMPT_BYTES, decoded
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED
from motif_jax.support.errors import UserError
from tests.envs.playing import started

TRAIN = "BabyAI-MixedTrainLocal-v0"
LOCAL = "BabyAI-GoToLocal-v0"


def bot_plays(env, out):
    steps = [env.step(int(out["bot_action"]), out)]
    while steps[-1][1] == RUNNING:
        steps.append(env.step(int(out["bot_action"]), out))
    return steps


def test_the_bot_solves_every_kind_and_the_reward_falls_with_the_steps():
    for kind in KINDS:
        env, out = started(TRAIN, 7, kind=kind, fields=("bot_action",))
        steps = bot_plays(env, out)
        info = env.episode_info()
        wanted = 1 - 0.9 * len(steps) / info["limit"]
        assert steps[-1] == (pytest.approx(wanted), TERMINATED)
        assert {reward for reward, _ in steps[:-1]} == {0.0}
        assert info["return"] == pytest.approx(wanted)
        assert (info["success"], KINDS[int(info["kind"])], info["length"]) == (1.0, kind, len(steps))


def test_a_bot_that_fails_says_nothing_any_more(monkeypatch):
    env, out = started(LOCAL, 3, fields=("bot_action",))
    assert out["bot_action"] < len(ACTIONS)

    monkeypatch.setattr(bot.BabyAIBot, "replan", Mock(side_effect=AssertionError))
    env.step(0, out)
    assert out["bot_action"] == bot.NO_ANSWER == 255
    monkeypatch.undo()
    env.step(0, out)
    assert out["bot_action"] == 255


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


def test_an_episode_is_determined_by_its_seed_and_kinds_are_drawn_from_it():
    env, out = started(TRAIN)
    other, again = started(TRAIN)
    kinds = []
    for seed in range(40):
        env.reset(seed, out)
        other.reset(seed, again)
        assert all(np.array_equal(out[name], again[name]) for name in out)
        kinds.append(int(env.episode_info()["kind"]))
        other.step(seed % 6, again)
    assert set(kinds) == set(range(len(KINDS)))
    fixed, first = started(TRAIN, 5, kind=KINDS[kinds[5]])
    env.reset(5, out)
    assert decoded(fixed.reset(5, first) or first["mission"]) == decoded(out["mission"])


def test_french_levels_speak_french_and_say_the_goal_in_french():
    _, out = started("BabyAI-GoToFrench-v0", 1, fields=("prompt",))
    assert decoded(out["mission"]).startswith("go to")
    assert "Tu " in decoded(out["text"])
    assert "But de l'agent: aller à " in decoded(out["prompt"])
    for quirk, goal in ((False, "ramasser"), (True, "aller")):
        options = {"language": "french", "kind": "pickup", "fields": ("prompt",)}
        _, out = started(TRAIN, 1, compat={"glam_french_goal": quirk}, **options)
        assert f"But de l'agent: {goal} " in decoded(out["prompt"])


def test_actions_beyond_the_sixth_change_nothing():
    names = (*ACTIONS, "sleep", "do nothing", "think")
    env, out = started(LOCAL, 2, actions=names, fields=("prompt",))
    before = out["image"].copy()
    for action in (6, 7, 8):
        assert env.step(action, out)[1] == RUNNING
        assert np.array_equal(out["image"], before)
    assert "Action 1: think" in decoded(out["prompt"])
    with pytest.raises(ValueError, match="action 9"):
        env.step(9, out)
    few, out = started(LOCAL, 2, actions=ACTIONS[:3])
    assert few.spec.num_actions == 3


def test_people_see_the_grid_and_what_the_agent_sees():
    spec = registry.spec(TRAIN)
    drawer = registry.renderer(spec)
    assert drawer is not None
    _, out = started(TRAIN, 4, kind="open", fields=drawer.fields)
    frame = drawer.frame(out)
    lines = [bytes(line).decode() for line in frame.chars]
    assert lines[0] == "# " * 15
    assert sum(line.count("X") for line in lines) == 1  # the locked door
    assert chr(frame.chars[frame.cursor]) in ">v<^"
    _, out = started(TRAIN, 4, kind="goto", fields=drawer.fields)
    assert bytes(drawer.frame(out).chars[0]).decode().rstrip() == ("# " * 8).rstrip()


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (TRAIN, {"kind": "dance"}, "babyai_text.kind=dance.*goto"),
        (LOCAL, {"change": "shouting"}, r"babyai_text.change=shouting: must be '' \(none\) or one of no_mod"),
        (LOCAL, {"distractors": 99}, "distractors=99: must be a number from 0 to 20"),
        ("BabyAI-GoToObj-v0", {"distractors": 4}, "distractors=4: must be None in BabyAI-GoToObj-v0"),
        (LOCAL, {"observations": 0}, "babyai_text.observations=0"),
        (LOCAL, {"actions": ("go", "вперёд")}, r"babyai_text.actions=.*latin-1"),
    ],
)
def test_bad_options_are_one_line(name, options, said):
    with pytest.raises(UserError, match=said) as caught:
        registry.spec(name, **options)
    assert "\n" not in str(caught.value)


def test_a_prompt_has_room_for_as_many_observations_as_are_asked_for():
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

        def kind(column, seed):
            group.start(column, seed)
            return group.episode_info(column)["kind"]

        return [{kind(column, seed) for seed in seeds} for column in range(len(places))]

    places = place_numbers(1, 0, 8)
    kinds = kinds_of(places)
    assert all(len(of) == 1 for of in kinds)
    assert len(set().union(*kinds)) > 1
    assert kinds_of(places[3:5], range(90, 92)) == kinds[3:5]
    assert kinds_of(place_numbers(2, 0, 8), [0]) != kinds
    # Without numbers, as in evaluations, kinds are those of the seeds.
    plain, switched = (
        [started(TRAIN, seed, **options)[0].episode_info()["kind"] for seed in range(5)]
        for options in ({}, {"compat": published})
    )
    assert plain == switched
