from __future__ import annotations

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.utils.env_checker import check_env

from motif_jax.envs import registration
from motif_jax.envs.gymnasium_env import RegisteredEnv
from motif_jax.envs.nethack.tasks import TASKS

LEVEL = "BabyAI-GoToLocal-v0"


def test_pictures_have_a_rate_for_gymnasiums_window():
    assert RegisteredEnv.metadata["render_fps"] > 0


def test_spaces_are_those_of_the_environments_arrays():
    env = RegisteredEnv("Recall-v0")

    assert env.action_space == Discrete(4)
    assert env.observation_space == Dict(
        features=Box(-np.inf, np.inf, (5,), np.float32),
        sign=Box(0, 255, (16,), np.uint8),
        sign_count=Box(-(2**31), 2**31 - 1, (), np.int32),
    )


@pytest.mark.parametrize("name", ["Crafter-v1", LEVEL])
def test_a_game_with_pictures_is_drawn_as_such(name):
    env = RegisteredEnv(name, "rgb_array")
    env.reset(seed=2)

    first = env.render()
    env.step(1)

    assert first.dtype == np.uint8
    assert first.shape[2:] == (3,)
    assert not np.array_equal(first, env.render())


def test_an_environment_without_a_render_mode_draws_nothing():
    env = RegisteredEnv(LEVEL, fields=("prompt",))
    env.reset(seed=2)

    assert env.render() is None


def test_a_level_is_drawn_as_text():
    env = RegisteredEnv(LEVEL, "ansi")
    env.reset(seed=2)

    assert env.render().splitlines() == [
        "# # # # # # # # ",
        "#   b b     . # ",
        "# k     k   > # ",
        "#         b . # ",
        "#           . # ",
        "#     b o   . # ",
        "#       o     # ",
        "# # # # # # # # ",
    ]


@pytest.mark.parametrize("mode", ["ansi", None])
def test_drawing_adds_no_fields_to_observations(mode):
    env = RegisteredEnv(LEVEL, mode, fields=("prompt",))

    observation, info = env.reset(seed=2)

    assert list(observation) == ["image", "mission", "text", "text_count", "prompt"]
    assert set(env.observation_space) == set(observation)
    assert info["length"] == 0


def test_a_limit_of_one_step_truncates_the_first():
    env = RegisteredEnv(LEVEL)
    env.limit(1)
    env.reset(seed=2)

    observation, reward, terminated, truncated, info = env.step(np.int64(0))

    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["length"] == 1
    assert observation["image"].shape == (7, 7, 3)


def test_a_second_registration_changes_nothing():
    before = dict(gymnasium.registry)
    registration.register()
    assert gymnasium.registry == before
    assert {f"motif_jax/{name}" for name in (*TASKS, "Recall-v0", "BabyAI-GoTo-v0")} <= set(before)


def test_gymnasium_has_nothing_to_complain_of():
    env = gymnasium.make("motif_jax/NetHackScore-v1", render_mode="ansi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Bounds as wide as the type are what bytes have.
        warnings.filterwarnings(
            "ignore", message=".*Box observation space (minimum|maximum) value.*"
        )
        check_env(env.unwrapped, skip_render_check=True)
    assert "Agent" in env.unwrapped.render()
    assert len(env.unwrapped.render().splitlines()) == 24
    env.close()


def test_one_seed_determines_all_following_episodes():
    def play():
        env = gymnasium.make("motif_jax/NetHackScore-v1", max_episode_steps=None)
        observations = [env.reset(seed=seed)[0] for seed in (5, None, None, 5)]
        env.close()
        return [
            b"".join(array.tobytes() for array in observation.values())
            for observation in observations
        ]

    first = play()
    assert first == play()
    assert first[0] == first[3]
    assert len(set(first)) == 3


def test_the_limit_of_gymnasium_make_ends_episodes_once():
    # 300 is above the environment's own 100.
    for steps, end in (
        (300, (202, True, False)),
        (202, (202, True, False)),
        (50, (50, False, True)),
    ):
        env = gymnasium.make("motif_jax/Recall-v0", delay=200, max_episode_steps=steps)
        for environment in (env, gymnasium.make(env.spec)):
            environment.reset(seed=1)
            played = ((step, *environment.step(0)[2:]) for step in range(1, 10_000))
            *end_of_episode, info = next(step for step in played if step[1] or step[2])
            assert (tuple(end_of_episode), info["length"], environment.spec.max_episode_steps) == (
                end,
                end[0],
                steps,
            )
    envs = gymnasium.make_vec(
        "motif_jax/Recall-v0", 2, vectorization_mode="sync", max_episode_steps=2
    )
    envs.reset(seed=0)
    assert [envs.step([0, 0])[3].tolist() for _ in range(2)] == [[False, False], [True, True]]


# By what they print: the engine's names stay; a spec needs no engine, and ours come with gymnasium.
PROGRAMS = {
    "nle.env.tasks motif_jax.envs.gymnasium_env": "import warnings; warnings.simplefilter('error');"
    "import gymnasium, nle;"
    "print(type(gymnasium.make('NetHackScore-v0').unwrapped).__module__,"
    "type(gymnasium.make('motif_jax:motif_jax/NetHackScore-v1').unwrapped).__module__)",
    "True _frozen_i": "import sys; from motif_jax.envs import registry; registry.names();"
    "registry.spec('NetHackOracle-v1'); assert not sys.modules.keys() & {'nle', 'jax', 'gymnasium'};"
    "import gymnasium; gymnasium.make('motif_jax/Recall-v0').reset(seed=0);"
    "assert 'minigrid' not in sys.modules;"
    "gymnasium.make('motif_jax/BabyAI-GoToLocal-v0', max_episode_steps=5).reset(seed=0);"
    "print(gymnasium.__spec__.loader is gymnasium.__loader__, type(gymnasium.__loader__).__module__[:9])",
}


@pytest.mark.parametrize("printed", PROGRAMS)
def test_a_process_imports_only_its_engine(repository, printed):
    line = [sys.executable, "-c", PROGRAMS[printed]]
    child = subprocess.run(line, capture_output=True, text=True, cwd=repository, check=True)
    assert child.stdout.strip() == printed


@pytest.mark.parametrize("action", [1, np.int64(1), np.array(1), 1.0])
def test_a_numbered_action_may_come_in_any_form(action):
    env = RegisteredEnv("Recall-v0")
    env.reset(seed=0)
    observation, *_ = env.step(action)
    again = RegisteredEnv("Recall-v0")
    again.reset(seed=0)
    expected, *_ = again.step(1)
    for name, field in expected.items():
        np.testing.assert_array_equal(observation[name], field)


def test_real_numbers_are_a_box():
    env = RegisteredEnv("gym:Pendulum-v1")
    assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    env.reset(seed=0)
    _, reward, *_ = env.step(env.action_space.sample())
    assert reward < 0
