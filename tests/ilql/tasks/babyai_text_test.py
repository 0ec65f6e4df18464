from __future__ import annotations

import itertools

import pytest

from motif_jax.core import seeds
from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.babyai_text.prompts import Window
from motif_jax.envs.spec import RUNNING
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.tasks import registry
from motif_jax.lm import text_data
from tests.envs.playing import started

LEVEL = "BabyAI-GoToLocal-v0"


def task(**options):
    return registry.make("babyai_text", options)


def replay(seed, actions, **options):
    """The text fields of the observations before each action and after the last, and how the
    episode ended.
    """
    environment, out = started(LEVEL, seed, **options)

    def texts():
        return {name: decoded(out[name]) for name in ("prompt", "text", "mission") if name in out}

    observations = [texts()]
    end = RUNNING
    for action in actions:
        _, end = environment.step(ACTIONS.index(action), out)
        observations.append(texts())
    return observations, end


@pytest.fixture(scope="module")
def games():
    return task().stream("games", "random")(seeds.rng(5), 3, 0)


def actions_of(game):
    return [
        text for text, reward in zip(game.texts, game.rewards, strict=True) if reward is not None
    ]


def test_a_games_text_is_the_prompt_of_endless_windows(games):
    for game in games:
        actions = actions_of(game)
        (first, *rest), end = replay(game.meta["seed"], actions)
        assert end != RUNNING
        window = Window(1000)
        window.start(first["text"].split("\n"))

        for number, (action, observation) in enumerate(zip(actions, rest, strict=True)):
            assert "".join(game.texts[: 2 * number + 1]) == window.prompt(first["mission"], ACTIONS)
            window.add(action, [clause for clause in observation["text"].split("\n") if clause])

        assert window.prompt(first["mission"], ACTIONS).startswith("".join(game.texts))


def test_no_action_is_asked_for_after_the_end(games):
    assert all(not game.texts[-1].endswith(": ") for game in games)


def test_a_game_with_a_reward_is_a_success(games):
    assert [task().outcome(game)["success"] for game in games] == [
        float(game.total > 0) for game in games
    ]


OBSERVATIONS = 3


@pytest.fixture(scope="module")
def steps():
    """The steps of the same games."""
    return task(observations=OBSERVATIONS).stream("steps", "random")(seeds.rng(5), 3, 0)


def test_a_step_is_prompt_action_and_next_observation(games, steps):
    assert len(steps) == sum(games.action_counts())
    groups = itertools.groupby(steps, lambda step: step.meta["group"])
    for game, (_, group) in zip(games, groups, strict=True):
        of_game = list(group)
        actions = [step.texts[1] for step in of_game]
        observations, _ = replay(
            game.meta["seed"], actions, fields=("prompt",), observations=OBSERVATIONS
        )

        for number, step in enumerate(of_game):
            assert step.texts[0] == observations[number]["prompt"]
            if step.rewards[1] > 0:
                assert step.terminal
                assert step.texts[2] == " \n The goal is reached."
                continue
            head, clauses = step.texts[2].split(": ", 1)
            assert head == f" \n Observation {min(number + 1, OBSERVATIONS)}"
            assert clauses in observations[number + 1]["prompt"]

        assert [step.terminal for step in of_game] == [False] * (len(of_game) - 1) + [game.terminal]
        assert sum(step.rewards[1] for step in of_game) == game.total


def test_steps_are_read_as_a_corpus_of_prompts_and_texts(steps, tmp_path):
    dialogue_files.write(tmp_path / "dialogues.parquet", [steps], {})

    items = text_data.read_items(text_data.find_files(str(tmp_path)))

    read = [(item.prompt, item.text, tuple(item.parts)) for item in items]
    assert read == [
        (step.texts[0], step.texts[1] + step.texts[2], step.texts[1:]) for step in steps
    ]


@pytest.fixture
def observation():
    """After four random actions."""
    environment = task().environment()
    policy = task().policy("random")
    rng = seeds.rng(2)
    observation = environment.reset(rng)
    for _ in range(4):
        observation = environment.step(policy.act(observation, rng)).observation
    return observation


def test_an_episode_continues_from_an_observation(observation):
    again = task().environment().reset(seeds.rng(9), start=observation)

    assert again.to_sequence() == observation.to_sequence()


def test_a_text_that_is_no_action_changes_only_the_number(observation):
    environment = task().environment()
    environment.reset(seeds.rng(9), start=observation)

    outcome = environment.step("où? " * 40 + "日")

    assert (outcome.reward, outcome.terminal) == (0.0, False)
    *_, action, after = outcome.observation.to_sequence().texts
    # Cut to the room in a prompt.
    assert action == ("où? " * 40)[:64]
    before = observation.to_sequence().texts[-1]
    assert after == before.replace("Observation 4", "Observation 5").replace("Action 4", "Action 5")


def test_an_episode_continues_after_a_text_that_is_no_action(observation):
    environment = task().environment()
    environment.reset(seeds.rng(9), start=observation)
    after = environment.step("où?").observation

    assert task().environment().reset(seeds.rng(9), start=after).prompt == after.prompt


def test_french_steps_are_allowed():
    task(language="french").check("steps", "random")
