"""What a user has set in jax changes no number of the package, and stays as it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax import agents, lm, rewards, text_agents, wrappers
from tests import text_agents as tiny
from tests.lm import models
from tests.play import untrained
from tests.reward_fixtures import launch

VARIABLES = {
    "JAX_ENABLE_X64": "1",
    "JAX_NUMPY_DTYPE_PROMOTION": "strict",
    "JAX_NUMPY_RANK_PROMOTION": "raise",
    "JAX_DEFAULT_PRNG_IMPL": "rbg",
    "JAX_THREEFRY_PARTITIONABLE": "0",
}


@contextlib.contextmanager
def users_options() -> Iterator[None]:
    with (
        jax.enable_x64(True),
        jax.numpy_dtype_promotion("strict"),
        jax.numpy_rank_promotion("raise"),
        jax.default_prng_impl("rbg"),
        jax.threefry_partitionable(False),
    ):
        yield
        assert jnp.arange(2.0).dtype == np.float64
        assert jax.config.jax_numpy_dtype_promotion == "strict"


def of_reward(folder: Path) -> Any:
    reward = rewards.load(folder)
    texts = [b"You kill the newt!", b"You see here a key."]
    return reward(texts), reward.raw(texts), reward.intrinsic(texts, quantile=0.1)


def of_agent(folder: Path) -> Any:
    agent = agents.load(folder)
    env = agent.make_env()
    observation, _ = env.reset(seed=0)
    first, state = agent.act(observation)
    second, state = agent.act(env.step(first)[0], state)
    env.close()
    return first, second, state.values, state.probabilities


def of_episodes(folder: Path) -> Any:
    episodes = []
    for episode in agents.play(folder, 2, seed=3, workers=1):
        # The loop's body is the user's.
        episodes.append((episode.index, episode.actions, episode.values, jnp.arange(2.0).dtype))
    *numbers, dtypes = zip(*sorted(episodes, key=lambda episode: episode[0]), strict=True)
    assert set(dtypes) == {jnp.arange(2.0).dtype}
    return numbers


def of_paid_steps(folder: Path) -> Any:
    env = wrappers.IntrinsicReward.of_agent(agents.load(folder).make_env(), folder)
    env.reset(seed=3)
    paid = [env.step(step % 9)[-1]["reward_parts"]["intrinsic"] for step in range(20)]
    env.close()
    return paid


def of_dialogues(folder: Path) -> Any:
    agent = text_agents.load(folder)
    said = [{"role": "assistant", "content": "crane"}]
    ranked = [candidate[1:] for candidate in agent.rank(said, ["lodge", "pulse"])]
    return agent.say(said, seed=1), agent.values(said)[1:], ranked


def of_language_model(folder: Path) -> Any:
    model = lm.load(folder)
    prompts = ["You kill", "The door"]
    written = model.generate(prompts, 8, sampling=lm.text.Sampling(), count=2, seed=1)
    searched = model.generate(prompts, 4, count=2, search=True)
    scores = model.score(prompts, [" open", " closed"])
    tokens = [row.log_probs for row in model.token_log_probs(prompts, [" it", " is"])]
    return written, searched, scores, tokens, model.states(prompts)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("options")
    reward = {
        "reward.dir": str(trained),
        "reward.quantile": 0.05,
        "reward.intrinsic_coefficient": 0.3,
    }
    untrained.write(base / "agent", "smoke", reward, {7: 1.0})
    models.write(base / "model", "gpt2")
    (base / "model" / "tokenizer.json").write_text(models.tokenizer())
    text_agent = tiny.write(base / "ilql")
    return {"reward": trained, "agent": base / "agent", "text": text_agent, "model": base / "model"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "numbers_of"),
    [
        ("reward", of_reward),
        ("agent", of_agent),
        ("agent", of_episodes),
        ("agent", of_paid_steps),
        ("text", of_dialogues),
        ("model", of_language_model),
    ],
)
def test_the_library_gives_the_same_beside_a_users_options(
    folders: dict[str, Path], name: str, numbers_of: Callable[[Path], Any]
) -> None:
    plain = numbers_of(folders[name])

    with users_options():
        beside = numbers_of(folders[name])

    assert jax.tree.structure(beside) == jax.tree.structure(plain)
    for one, other in zip(jax.tree.leaves(beside), jax.tree.leaves(plain), strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_command_gives_the_same_beside_a_users_variables(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = [f"--config.dataset_dir={trained.parent / 'dataset'}", "--config.annotator=test"]
    launch("train_reward", tmp_path / "plain", *flags)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)

    launch("train_reward", tmp_path / "beside", *flags)

    plain, beside = (
        (tmp_path / name / "val_metrics.csv").read_text() for name in ("plain", "beside")
    )
    assert plain == beside
