from __future__ import annotations

import itertools

import pytest

from motif_jax.core import seeds
from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.babyai_text.prompts import Window
from motif_jax.envs.spec import RUNNING
from motif_jax.ilql.dialogues import parquet
from motif_jax.ilql.tasks import registry
from motif_jax.lm import corpus
from tests.envs.playing import refused, started, told
from tests.recorded_outputs import assert_matches_packed_recording

LEVEL = "BabyAI-GoToLocal-v0"


def task(**options):
    return registry.make("babyai_text", options)


def seen(seed, actions, **options):
    """The fields of each observation on the way, as texts, and how it ended."""
    world, out = started(LEVEL, seed, **options)
    found, end = [], RUNNING
    for action in (*actions, None):
        found.append({name: decoded(out[name]) for name in ("prompt", "text", "mission") if name in out})
        end = end if action is None else world.step(ACTIONS.index(action), out)[1]
    return found, end


@pytest.fixture(scope="module")
def games():
    return task().stream("games", "random")(seeds.rng(5), 3, 0)


def test_a_game_laid_end_to_end_is_what_an_agent_with_an_endless_window_reads(games):
    for game in games:
        actions = [text for text, reward in zip(game.texts, game.rewards, strict=True) if reward is not None]
        (first, *rest), end = seen(game.meta["seed"], actions)
        assert end != RUNNING
        window = Window(1000)
        window.start(first["text"].split("\n"))
        for number, (action, now) in enumerate(zip(actions, rest, strict=True)):
            assert "".join(game.texts[: 2 * number + 1]) == window.prompt(first["mission"], ACTIONS)
            window.add(action, [clause for clause in now["text"].split("\n") if clause])
        # Behind the end no action is asked for.
        assert window.prompt(first["mission"], ACTIONS).startswith("".join(game.texts))
        assert not game.texts[-1].endswith(": ")
        assert task().outcome(game) == {"success": float(game.total > 0)}


def test_a_step_is_a_prompt_an_action_and_what_came_of_it(games, tmp_path):
    observations = 3
    drawn = task(observations=observations).stream("steps", "random")(seeds.rng(5), 3, 0)
    assert len(drawn) == sum(games.turns())
    groups = itertools.groupby(drawn, lambda step: step.meta["group"])
    for game, steps in zip(games, (list(group) for _, group in groups), strict=True):
        actions = [step.texts[1] for step in steps]
        shown, _ = seen(game.meta["seed"], actions, fields=("prompt",), observations=observations)
        for number, step in enumerate(steps):
            assert step.texts[0] == shown[number]["prompt"]
            if step.rewards[1] > 0:
                assert (step.terminal, step.texts[2]) == (True, " \n The goal is reached.")
                continue
            head, clauses = step.texts[2].split(": ", 1)
            assert head == f" \n Observation {min(number + 1, observations)}"
            assert clauses in shown[number + 1]["prompt"]
        assert [step.terminal for step in steps] == [False] * (len(steps) - 1) + [game.terminal]
        assert sum(step.rewards[1] for step in steps) == game.total
    parquet.write(tmp_path / "dialogues.parquet", [drawn], {})
    items = corpus.read(corpus.find(str(tmp_path)), "line")
    read = [(item.prompt, item.text, tuple(item.parts)) for item in items]
    assert read == [(step.texts[0], step.texts[1] + step.texts[2], step.texts[1:]) for step in drawn]


def test_an_episode_is_taken_up_where_it_stood():
    world, policy, rng = task().environment(), task().policy("random"), seeds.rng(2)
    now = world.reset(rng)
    for _ in range(4):
        now = world.step(policy.act(now, rng)).observation
    again = task().environment().reset(seeds.rng(9), start=now)
    assert again.to_sequence() == now.to_sequence()
    said = world.step("où? " * 40 + "日")
    assert said[1:] == (0.0, False)
    *_, name, after = said.observation.to_sequence().texts
    assert name == ("où? " * 40)[:64]
    # Nothing has changed but the number.
    before = now.to_sequence().texts[-1]
    assert after == before.replace("Observation 4", "Observation 5").replace("Action 4", "Action 5")
    assert task().environment().reset(seeds.rng(9), start=said.observation).prompt == said.observation.prompt
    assert "has ended, or none has begun" in told(task().environment().step, "turn left")


def test_what_cannot_be_is_said(record):
    french = {"language": "french"}
    cases = [
        ({"level": "BabyAI-Nowhere-v0"}, "games", "random"),
        ({"observations": 0}, "games", "random"),
        ({"language": "german"}, "games", "random"),
        ({"actions": ("go", "go")}, "games", "random"),
        ({}, "branch", "random"),
        ({}, "games", "optimal"),
        (french, "hindsight", "random"),
    ]
    assert_matches_packed_recording(
        "babyai_task_refusals", {str(case): refused("babyai_text", *case) for case in cases}, record
    )
    assert {task(**french).check("steps", "random"), task().at_a_time("games")} == {None, 16}
