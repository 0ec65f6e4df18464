"""Environments that are not a function of their seed and actions are found before anything is
played.
"""

from __future__ import annotations

import contextlib

import gymnasium
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs import determinism, registry
from motif_jax.envs.episode import EpisodePlayer, fixed_actions
from motif_jax.envs.recording import mismatch_error, record, record_actions
from motif_jax.motif import sampling
from motif_jax.play import evaluate, evaluation_files, visualize
from motif_jax.rl import train_agent
from motif_jax.rl.actors import episodes
from motif_jax.rl.actors.episodes import EpisodeJob, EpisodeServer
from tests.reward_fixtures import load_config, run_config


class Dice(gymnasium.Env):
    """Rolls dice until a six; `wrong` says where random numbers come from that the seed does not
    give.
    """

    metadata = {"render_modes": ["rgb_array"]}
    observation_space = gymnasium.spaces.Discrete(7)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, wrong="", render_mode=None):
        if wrong == "display" and render_mode:
            raise RuntimeError("no display")
        self.wrong = wrong
        self.render_mode = render_mode
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=None if self.wrong == "seed" else seed)
        self.episodes += 1
        return 0, {"text": "You sit down."}

    def step(self, action):
        if self.wrong == "lost":
            raise RuntimeError("the dice are lost")
        rolled = int(self.np_random.integers(1, 7))
        if self.wrong == "past":
            rolled = (rolled + self.episodes) % 7
        reward = float(rolled)
        if self.wrong == "seed":
            # Two games of one roll each may well be the same; their rewards are not.
            reward += self.np_random.random()
        return rolled, reward, rolled == 6, False, {"text": f"You roll {rolled}."}

    def render(self):
        generator = self.np_random if self.wrong == "picture" else np.random.default_rng(0)
        return np.full((4, 4, 3), generator.integers(255), np.uint8)


class Sticky(gymnasium.Env):
    """Sometimes does the last action again, also one of the episode before: as MinAtar's games,
    which keep it over a reset.
    """

    observation_space = gymnasium.spaces.Discrete(6)
    action_space = gymnasium.spaces.Discrete(6)
    last = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        if self.np_random.random() >= 0.1:
            self.last = int(action)
        self.steps += 1
        return self.last, float(self.last), self.steps == 30, False, {}


gymnasium.register("DiceSticky-v0", entry_point=Sticky)
for _wrong in ("", "seed", "past", "picture", "display", "lost"):
    gymnasium.register(f"Dice{_wrong}-v0", entry_point=Dice, kwargs={"wrong": _wrong})


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ("seed", determinism.UNSEEDED),
        ("past", determinism.CARRIES),
        ("picture", determinism.UNSEEDED),
    ],
)
def test_an_environment_that_its_seed_does_not_decide_is_refused(wrong, cause):
    with pytest.raises(
        UserError, match=f"^config.policy=agents .*gym:Dice{wrong}-v0 is not a function"
    ) as error:
        determinism.require(f"gym:Dice{wrong}-v0", {"text": "info:text"}, "config.policy=agents")
    assert "reset(seed=...)" in str(error.value)
    assert cause in str(error.value)


def wrapped(name, wrapper):
    """Changes of a config that play the environment in a wrapper."""
    return {
        "environment.name": f"gym:{name}-v0",
        "environment.modules": "tests.gym_toys",
        "environment.wrappers": wrapper,
    }


LEARNED = [
    wrapped("ToyAim", "gymnasium.wrappers:NormalizeObservation"),
    wrapped("ToyAim", "tests.gym_toys:Centred"),
    # It always pays 0, which no reward's statistics change.
    wrapped("ToyLamp", "gymnasium.wrappers:NormalizeReward"),
    # What its seed does not decide hides what the wrapper learns.
    wrapped("Diceseed", "gymnasium.wrappers:NormalizeReward"),
    {"environment.name": "gym:Dicepast-v0"},
]


@pytest.mark.parametrize("changes", LEARNED)
@pytest.mark.parametrize(
    ("stage", "variant", "more"),
    [
        (train_agent, "train_agent:gym", {}),
        (evaluate, "evaluate:smoke", {"policy": "random"}),
    ],
)
def test_what_an_environment_keeps_over_episodes_is_refused(
    tmp_path, stage, variant, more, changes
):
    """Each actor's environments would learn their own, and an evaluation's begin anew."""
    config = load_config(*variant.split(":"), {**more, **changes})
    with pytest.raises(UserError, match=determinism.CARRIES) as error:
        stage.check(config, tmp_path / "run")
    assert "--config.network.observation_normalisation=running" in str(error.value)


def test_statistics_that_no_longer_change_are_a_function():
    wrappers = {"modules": "tests.gym_toys", "wrappers": "tests.gym_toys:standing_still"}
    assert determinism.look("gym:ToyAim-v0", wrappers) == determinism.Look()
    assert determinism.look("gym:Dicepast-v0", {}).fault == determinism.CARRIES


def test_a_first_action_that_is_the_last_of_the_game_before_is_kept():
    """One first step of ten shows it, so that a few games of the same order would not."""
    assert determinism.look("gym:DiceSticky-v0", {}).fault == determinism.CARRIES


def test_an_environment_that_fails_is_not_judged_and_said_to_fail():
    seen = determinism.look("gym:Dicelost-v0", {})

    assert seen == determinism.Look(failure=seen.failure)
    assert seen.failure
    (remark,) = determinism.remarks("gym:Dicelost-v0", {})
    assert seen.failure in remark


def test_games_that_the_seed_does_not_decide_are_no_pairs(tmp_path, capsys):
    changes = {
        "environment.name": "gym:Diceseed-v0",
        "environment.modules": "tests.envs.determinism_test",
        "policy": "random",
        "episodes": 3,
    }
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        run_config(load_config("evaluate", "smoke", changes), folder)
        assert capsys.readouterr().err.startswith("gym:Diceseed-v0: the same seed and actions gave")
    first, second = map(evaluation_files.read_evaluation, folders)

    first_games = evaluation_files.games(first, "return")
    second_games = evaluation_files.games(second, "return")
    assert [row["seed"] for row in first["rows"]] == [row["seed"] for row in second["rows"]]
    assert len(first_games) == len(second_games) == 3
    assert not first_games.keys() & second_games.keys()
    config = load_config("visualize", "", {"recorded.evaluation": str(folders[0])})
    with pytest.raises(UserError, match=determinism.UNSEEDED):
        visualize.check(config, tmp_path / "film")


def test_a_training_says_first_that_the_seed_does_not_decide(tmp_path):
    config = load_config("train_agent", "gym", {"environment.name": "gym:Diceseed-v0"})
    train_agent.check(config, tmp_path / "run")
    (line,) = determinism.remarks("gym:Diceseed-v0", {})
    assert "not compared as pairs" in line
    assert determinism.remarks("gym:Dice-v0", {}) == []


def test_a_function_of_its_seed_passes():
    # Where there is no display, what draws no picture is played without any.
    for name in ("gym:Dice-v0", "gym:Dicedisplay-v0"):
        determinism.require(name, {"text": "info:text"}, "config.policy=agents")
    determinism.require("NetHackScore-v1", {}, "config.policy=agents")


def test_a_recording_of_a_users_environment_blames_no_game():
    environment = registry.make("gym:Dice-v0")
    recording = record(environment, "gym:Dice-v0", {}, 1, np.zeros(2, int))
    line = str(mismatch_error(recording))
    assert "nle" not in line
    assert "its pictures draw from the game's generator" in line


def test_an_agents_episode_that_does_not_repeat_is_refused(tmp_path):
    plan = sampling.SamplingPlan(
        "gym:Diceseed-v0",
        {"text": "info:text"},
        ("message",),
        0,
        1,
        1.0,
        str(tmp_path),
        text="caption",
    )
    job = EpisodeJob(0, 5, actions=np.zeros(500, int))
    player = EpisodePlayer(registry.make(plan.environment, **plan.options), plan.kept_fields)
    episode = player.play(job.seed, fixed_actions(job.actions))
    with pytest.raises(UserError, match="otherwise the second time"):
        sampling.write_chunk(plan, job, episode)


DICE = {"environment.name": "gym:Diceseed-v0", "environment.text": "info:text"}


@pytest.mark.parametrize(
    ("stage", "variant", "changes"),
    [
        (visualize, "visualize:smoke", {"policy": "random"}),
        (train_agent, "train_agent:gym", {"record_every": 2}),
    ],
)
def test_what_plays_games_again_needs_such_a_function(tmp_path, stage, variant, changes):
    config = load_config(*variant.split(":"), {**DICE, **changes})
    with pytest.raises(UserError, match="gym:Diceseed-v0 is not a function of these"):
        stage.check(config, tmp_path / "run")


def test_a_film_of_another_game_than_its_recording_is_refused(tmp_path, monkeypatch):
    """Short random games, by which environments are checked, need not meet what differs."""
    monkeypatch.setattr(determinism, "require", lambda *arguments: None)
    config = load_config("visualize", "smoke", {**DICE, "policy": "random", "episodes": 3})
    visualize.check(config, tmp_path / "film")
    with pytest.raises(UserError, match="does not play the same way twice"):
        visualize.run(config, tmp_path / "film")
    assert not list((tmp_path / "film").glob("episode-*.json"))


def test_a_process_that_records_a_slow_game_is_no_hang(monkeypatch):
    signs_of_life = []
    monkeypatch.setattr(episodes, "note_progress", lambda: signs_of_life.append(1))
    options = {"text": "info:text"}
    played = record_actions("gym:Dice-v0", options, 1, np.zeros(20, int))
    setup = {"environment": "gym:Dice-v0", "options": options}
    with contextlib.closing(EpisodeServer(setup)) as recorder:
        assert recorder.answer(EpisodeJob(0, 1, actions=played.actions)).info == played.info
    # Each step, and the first observation.
    assert len(signs_of_life) == len(played.actions) + 1


def test_an_evaluation_shows_no_rate_of_a_success_that_falls(tmp_path, capsys):
    """A random player meets it before the first game, so that two evaluations have one name."""
    changes = {
        "environment.name": "gym:ToyLamp-v0",
        "environment.modules": "tests.gym_toys",
        "policy": "random",
        "episodes": 8,
    }
    run_config(load_config("evaluate", "smoke", changes), tmp_path)

    read = evaluation_files.read_evaluation(tmp_path)
    output = capsys.readouterr()
    assert "success" not in read["measures"]
    assert "info_success" in read["measures"]
    assert "info_success, and no success rate" in output.err
    assert "success rate" not in output.out
