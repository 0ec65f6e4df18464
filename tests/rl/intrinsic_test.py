"""A trained reward as agents and people use it."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.motif.reward.motif import MotifReward
from motif_jax.motif.reward.reward_model import RewardModel, read_run
from motif_jax.motif.reward.safetensors_file import statistics_of, write_safetensors
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork
from motif_jax.rl.config import AgentReward

SPEC = EnvironmentSpec({"message": ArraySpec((256,), "uint8")}, 3, text_field="message")


def section(folder, **values) -> AgentReward:
    return AgentReward(**{"dir": str(folder), **values})


def some_messages(count=20):
    rng = np.random.default_rng(5)
    rows = np.zeros((count, 256), np.uint8)
    rows[:, :30] = rng.integers(32, 127, (count, 30))
    rows[1, :] = rng.integers(32, 127, 256)
    rows[3] = 0
    return rows


def test_agents_and_python_take_the_advised_threshold(trained):
    model = read_run(trained)
    advised = model.statistics["advice"]["threshold"]
    assert advised != model.normalisation(True, 0.5).threshold
    reward = rewards.load_intrinsic(section(trained, threshold="auto"), SPEC)
    assert f"threshold {advised:g} (auto)" in reward.description
    messages = some_messages()
    paid = reward.lookup(messages).values
    normalised = model.normalisation().normalise(model.of_messages(model.params, messages))
    np.testing.assert_array_equal(paid != 0, normalised > np.float32(advised))
    np.testing.assert_allclose(rewards.load(trained).intrinsic(messages, "auto"), paid)


def test_without_a_folder_there_is_no_reward():
    assert rewards.load_intrinsic(section("", dir=None), SPEC) is None


def test_a_reward_of_messages_reads_messages_alone(trained):
    rewards.check(section(trained))
    assert MotifReward.required_fields(section(trained)) == ("message",)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"quantile": 0.52},
            r"config\.reward\.quantile=0\.52: .* has the levels 0\.05, 0\.1, .*, 0\.95, and None",
        ),
        ({"step": 9}, r"has no checkpoint 9: it has \[0, 1\]"),
    ],
)
def test_a_quantile_or_step_that_a_reward_lacks_is_refused(trained, values, words):
    with pytest.raises(UserError, match=words):
        rewards.check(section(trained, **values))


def test_an_environment_without_text_has_nothing_to_reward(trained):
    with pytest.raises(
        UserError, match=r"config\.reward\.dir=.*: the environment shows no text to reward"
    ):
        rewards.load_intrinsic(section(trained), EnvironmentSpec({}, 3))


@pytest.mark.slow
def test_rewards_of_whole_observations_run_in_the_step(tmp_path):
    network = RewardNetwork(RewardArchitecture(message="lt_cnn_small", status=True, hidden_dim=8))
    rng = np.random.default_rng(0)
    observation = {
        "message": some_messages(6).reshape(3, 2, 256),
        "blstats": rng.integers(0, 20, (3, 2, 27)).astype(np.int32),
    }
    rows = {name: x.reshape(6, *x.shape[2:]) for name, x in observation.items()}
    params = jax.tree.map(np.asarray, network.init(jax.random.key(0)))
    statistics = statistics_of(0.5, 2.0, np.linspace(-1, 1, 19).tolist())
    model = RewardModel(tmp_path, 3, network, params, 1, statistics, {"stage": "train_reward"}, [])
    write_safetensors(model, tmp_path / "reward.safetensors")
    config = section(tmp_path / "reward.safetensors")
    assert MotifReward.required_fields(config) == ("message", "blstats")
    reward = rewards.load_intrinsic(config, registry.spec("NetHackScore-v1"))
    values = jax.jit(reward.in_step)(reward.params, observation)
    expected = model.normalisation(True, 0.5)(network.reward(params, rows)).reshape(3, 2)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
