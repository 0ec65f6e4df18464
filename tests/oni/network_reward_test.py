"""What the network of an online reward pays before its first training, and the values that it
refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from motif_jax import rewards
from motif_jax.envs import registry
from motif_jax.motif.reward.reward_function import as_rows
from motif_jax.oni.network_reward import NetworkReward
from motif_jax.rl.config import agent_config
from motif_jax.rl.intrinsic import RunSetup
from tests.rl import oni_runs
from tests.rl.oni_runs import oni_config

TEXTS = as_rows(["the cue is 3", "which cue?", ""])[0]


def make_reward(folder: Path, untrained_pays: bool) -> NetworkReward:
    config = oni_config(
        "ranking",
        reward__encoder="lt_cnn_small",
        reward__normalise=False,
        compat__oni_untrained_reward=untrained_pays,
    )
    run = RunSetup(agent_config(config), folder)
    reward = rewards.load_intrinsic(run.config.reward, registry.spec("Recall-v0"), run=run)
    assert isinstance(reward, NetworkReward)
    return reward


@pytest.fixture
def untrained(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NetworkReward]:
    """A reward before its first label; its parameter says whether it pays then, as published."""
    oni_runs.answer(monkeypatch)
    reward = make_reward(tmp_path, request.param)
    reward.start()
    yield reward
    reward.close()


@pytest.mark.slow
@pytest.mark.parametrize("untrained", [False], indirect=True)
def test_an_untrained_network_pays_nothing(untrained: NetworkReward) -> None:
    assert untrained.lookup(TEXTS).values.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("untrained", [True], indirect=True)
def test_a_fresh_network_pays_its_values_as_published(untrained: NetworkReward) -> None:
    values = untrained.lookup(TEXTS).values

    np.testing.assert_allclose(values, untrained.compute(untrained.table.params, TEXTS), rtol=1e-6)
    assert np.unique(values).size == 3
