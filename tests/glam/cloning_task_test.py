import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.training.task import TrainingPosition
from motif_jax.core.training.trainer import OfflineTrainer
from motif_jax.envs import registry
from motif_jax.glam import cloning_task
from motif_jax.glam.cloning_data import CloningData
from motif_jax.glam.config import CloningConfig
from motif_jax.lm import scoring
from motif_jax.rl import agent_networks, settings
from motif_jax.rl.config import agent_config
from motif_jax.schema import read_section
from tests.lm import talkers
from tests.reward_fixtures import load_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return talkers.write(tmp_path_factory.mktemp("model"))


def made(stage, model, **overrides):
    overrides |= {"environment.name": "BabyAI-GoToLocal-v0", "network.model": str(model)}
    config = load_config(stage, "smoke", {"network.prompt_tokens": 12, **overrides})
    agent = agent_config(config)
    spec = registry.spec(agent.environment.name, **settings.environment_options(agent))
    return config, agent_networks.class_of(agent).make(agent, spec)


@pytest.fixture(scope="module")
def network(model):
    return made("train_language_agent", model)[1]


def test_losses_are_those_of_the_experts_tokens(network):
    params = network.init(jax.random.key(3))
    prompts = jnp.array([[5, 6, 7, 8, -1, -1], [9, 10, 11, 12, 13, 14], [5, 5, 5, -1, -1, -1]])
    batch = cloning_task.CloningBatch(prompts, jnp.array([0, 3, 5]), jnp.array([True, True, False]))
    logits, _ = jax.jit(network.logits_and_values)(params, prompts)
    among = jax.jit(functools.partial(cloning_task.sums, network, False))(params, {}, batch)
    expected = -jax.nn.log_softmax(logits)[jnp.arange(3), batch.actions][:2].sum()
    np.testing.assert_allclose(among.loss, expected, rtol=1e-5)
    assert (among.weight, among.counted) == (2, 2)

    words, present = (np.asarray(part) for part in network.candidates)
    score = jax.jit(functools.partial(scoring.score, network.model))
    for length, pads in ((None, 0), (4, 1)):
        spoken = cloning_task.scoring_targets(network, 1, 0, length)
        sums = jax.jit(functools.partial(cloning_task.sums, spoken, True))(params, {}, batch)
        expected = 0.0
        tokens = 0
        for row in range(2):
            action = int(batch.actions[row])
            target = [*words[action][present[action]].tolist(), 1]
            target += [0] * (length - len(target)) if length else []
            assert bool(pads) == (0 in target)
            prompt = prompts[row : row + 1]
            target_tokens = jnp.array([target])
            by_itself = score(
                params["model"],
                jnp.maximum(prompt, 0),
                prompt >= 0,
                target_tokens,
                target_tokens >= 0,
            )
            expected = expected - float(by_itself.total[0, 0])
            tokens = tokens + len(target)
        np.testing.assert_allclose(sums.loss, expected, rtol=1e-4)
        assert sums.weight == tokens


def test_tokens_are_predicted_by_their_probabilities_whatever_it_acts_by(network):
    acting = dataclasses.replace(network, form="raw_logit", by_length=True, pad_plus_one=True)
    plain_target, published_target = (
        cloning_task.scoring_targets(agent, 1, 0, None) for agent in (network, acting)
    )
    params = network.init(jax.random.key(3))
    prompts = jnp.array([[5, 6, 7]])
    one, other = (
        jax.jit(target.logits_and_values)(params, prompts)[0]
        for target in (published_target, plain_target)
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.extra
def test_low_rank_additions_are_cloned_into_a_base_that_stays(model):
    parallel = DataParallel(jax.local_devices()[:1])
    tokens = np.arange(5, 29, dtype=np.int32)
    rows = np.arange(8)
    data = CloningData(
        tokens, np.arange(0, 25, 3), rows.astype(np.int32) % 6, rows, rows, "made up"
    )
    losses = []
    for patterns in ("*/attention/query", ""):
        config, network = made("clone_behaviour", model, **{"lora.patterns": patterns})
        cloning = read_section(CloningConfig, config)
        task = cloning_task.CloningTask(cloning, network, data, parallel, (1, 0), {})
        trainer = OfflineTrainer(task, cloning)
        carry = trainer.place(task.init_state())
        losses.append(
            task.evaluate(carry.state, carry.shared, TrainingPosition()).row["validation/loss"]
        )
        if patterns:
            before = jax.device_get((carry.state.params, carry.shared))
            carry, _ = trainer.train_chunk(carry, task.batches(0, 1))
            after = jax.device_get((carry.state.params, carry.shared))
    np.testing.assert_allclose(*losses, rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, before[1], after[1])
    assert all(np.abs(addition["b"]).max() > 0 for addition in after[0]["additions"].values())
