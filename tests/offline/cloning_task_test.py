"""The losses of cloning, against what they are by the tokens' log-probabilities one by one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.language import scoring
from motif_jax.offline import cloning_task
from motif_jax.offline.cloning_task import Batch
from motif_jax.online import agent_networks, settings
from tests.language import talkers
from tests.reward_fixtures import load_config

pytestmark = [pytest.mark.usefixtures("compiled_quickly"), pytest.mark.slow]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    config = load_config("train_language_agent", "smoke")
    config.network.model = str(talkers.write(tmp_path_factory.mktemp("model")))
    config.network.prompt_tokens = 12
    spec = registry.spec(config.environment.name, **settings.environment_options(config))
    return agent_networks.make(config, spec)


def test_losses_are_those_of_the_experts_tokens(network):
    params = network.init(jax.random.key(3))
    prompts = jnp.array([[5, 6, 7, 8, -1, -1], [9, 10, 11, 12, 13, 14], [5, 5, 5, -1, -1, -1]])
    batch = Batch(prompts, jnp.array([0, 3, 5]), jnp.array([True, True, False]))
    logits, _ = network.rows(params, prompts)
    among = cloning_task.sums(network, None, params, batch)
    expected = -jax.nn.log_softmax(logits)[jnp.arange(3), batch.actions][:2].sum()
    np.testing.assert_allclose(among.loss, expected, rtol=1e-5)
    assert (among.weight, among.rows) == (2, 2)

    words, there = (np.asarray(part) for part in network.candidates)
    for length, pads in ((None, 0), (4, 1)):
        spoken, counts = cloning_task.targets(network, 1, 0, length)
        found = cloning_task.sums(spoken, jnp.asarray(counts), params, batch)
        expected, tokens = 0.0, 0
        for row in range(2):
            action = int(batch.actions[row])
            target = [*words[action][there[action]].tolist(), 1]
            target += [0] * (length - len(target)) if length else []
            assert bool(pads) == (0 in target)
            valid = prompts[row : row + 1] >= 0
            by_itself = scoring.score(
                network.model, params["model"], jnp.maximum(prompts[row : row + 1], 0), valid,
                jnp.array([target]), jnp.ones((1, len(target)), bool),
            )  # fmt: skip
            expected, tokens = expected - float(by_itself.total[0, 0]), tokens + len(target)
        np.testing.assert_allclose(found.loss, expected, rtol=1e-4)
        assert found.weight == tokens
