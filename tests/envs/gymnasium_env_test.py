from __future__ import annotations

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from motif_jax.envs import registration
from motif_jax.envs.gymnasium_env import RegisteredEnv
from motif_jax.envs.nethack.tasks import TASKS
from tests.recorded_outputs import assert_matches_packed_recording

LEVEL = "BabyAI-GoToLocal-v0"


def test_only_text_is_drawn(record):
    with pytest.raises(ValueError, match="render_mode 'human' is not one of"):
        RegisteredEnv("Recall-v0", render_mode="human")
    recall = RegisteredEnv("Recall-v0", "ansi")
    level, plain = (RegisteredEnv(LEVEL, mode, fields=("prompt",)) for mode in ("ansi", None))
    shown = [recall.observation_space, recall.action_space, recall.render(), recall.render_mode]
    shown.append(plain.render())
    for env in (level, plain):
        shown += [list(env.reset(seed=2)[0]), env.render(), *env.step(np.int64(1))[1:]]
    level.limit(1)
    shown += [list(level.reset()[0]), *level.step(0)]
    assert_matches_packed_recording("registered", {"all": "\n".join(map(str, shown))}, record)


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
        warnings.filterwarnings("ignore", message=".*Box observation space (minimum|maximum) value.*")
        check_env(env.unwrapped, skip_render_check=True)
    assert "Agent" in env.unwrapped.render()
    assert len(env.unwrapped.render().splitlines()) == 24
    env.close()


def test_one_seed_determines_all_following_episodes():
    def play():
        env = gymnasium.make("motif_jax/NetHackScore-v1", max_episode_steps=None)
        seen = [env.reset(seed=seed)[0] for seed in (5, None, None, 5)]
        env.close()
        return [b"".join(array.tobytes() for array in observation.values()) for observation in seen]

    first = play()
    assert first == play()
    assert first[0] == first[3]
    assert len(set(first)) == 3


def test_the_limit_of_gymnasium_make_is_the_environments_and_an_episode_has_one_end():
    # 300 is above the environment's own 100.
    for steps, end in ((300, (202, True, False)), (202, (202, True, False)), (50, (50, False, True))):
        env = gymnasium.make("motif_jax/Recall-v0", delay=200, max_episode_steps=steps)
        for made in (env, gymnasium.make(env.spec)):
            made.reset(seed=1)
            played = ((step, *made.step(0)[2:]) for step in range(1, 10_000))
            *found, info = next(step for step in played if step[1] or step[2])
            assert (tuple(found), info["length"], made.spec.max_episode_steps) == (end, end[0], steps)
    envs = gymnasium.make_vec("motif_jax/Recall-v0", 2, vectorization_mode="sync", max_episode_steps=2)
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
def test_what_a_process_imports(repository, printed):
    line = [sys.executable, "-c", PROGRAMS[printed]]
    child = subprocess.run(line, capture_output=True, text=True, cwd=repository, check=True)
    assert child.stdout.strip() == printed
