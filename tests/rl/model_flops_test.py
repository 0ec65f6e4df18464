from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.devices import flops
from motif_jax.core.devices.meters import Reading
from motif_jax.envs import registry
from motif_jax.nets.agent import make_agent_network
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl import settings
from motif_jax.rl.agent_networks import published_form
from motif_jax.rl.batcher import Batch
from motif_jax.rl.config import AgentConfig, agent_config
from motif_jax.rl.model_flops import DeviceUse, row_flops
from tests.made_up_devices import MadeUpDevice
from tests.reward_fixtures import load_config
from tests.rl.runs import column

DEVICE = MadeUpDevice("NVIDIA H100 80GB HBM3")
ROLLOUT = 16
ROLLOUTS = 8


def small_training() -> tuple[AgentConfig, PolicyNetwork, Batch]:
    """A small training, its network, and a batch as the learner gets it."""
    config = settings.resolved(agent_config(load_config("train_agent")))
    network = make_agent_network(config.network, registry.spec(config.environment.name))
    fields = network.spec.observation
    observation = {
        name: np.zeros((1, ROLLOUT + 1, ROLLOUTS, *fields[name].shape), fields[name].dtype)
        for name in network.fields
    }
    trajectories = column([1], [0], [0])._replace(observation=observation)
    return config, network, Batch(trajectories, 1, [])


def test_shares_of_the_peak_of_learning_and_of_everything() -> None:
    config, network, batch = small_training()
    use = DeviceUse(config, network, {}, [DEVICE], [DEVICE])
    for _ in range(3):
        use.add(batch)
    reading = Reading({"inference/rows": 500.0, "learner/update": 0.5}, {}, {}, 4.0)
    forward, updating = row_flops(*published_form(config.network, network))
    learned = 3 * updating * (ROLLOUT + 1) * ROLLOUTS
    peak = 494e12  # of float32 that is rounded

    metrics = use.metrics(reading)

    assert math.isclose(metrics["learner/mfu"], learned / 0.5 / peak)
    assert math.isclose(metrics["throughput/mfu"], (learned + 500 * forward) / 4.0 / peak)
    assert use.metrics(reading)["learner/mfu"] == 0.0


def test_nothing_is_traced_where_the_peak_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    config, network, batch = small_training()
    monkeypatch.setattr(jax, "make_jaxpr", None)
    use = DeviceUse(config, network, None, [jax.devices("cpu")[0]], [])

    use.add(batch)

    assert use.metrics(Reading({}, {}, {}, 1.0)) == {}


@pytest.mark.parametrize("adds", [True, False])
def test_a_loop_counts_as_its_turns_one_by_one(adds: bool) -> None:
    """With low-rank additions to frozen kernels: what is carried depends on them from the second
    turn on.
    """
    frozen = jnp.ones((4, 8, 8))
    additions = {"a": jnp.ones((4, 8, 2)), "b": jnp.ones((4, 2, 8))}

    def block(x: jax.Array, kernel: jax.Array, addition: dict[str, jax.Array]) -> jax.Array:
        y = x @ kernel
        return y + x @ addition["a"] @ addition["b"] if adds else y

    def looped(additions: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        def body(carry: jax.Array, layer: tuple[Any, Any]) -> tuple[jax.Array, None]:
            return block(carry, *layer), None

        return jax.lax.scan(body, x, (frozen, additions))[0]

    def unrolled(additions: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        for number in range(4):
            x = block(
                x, frozen[number], jax.tree.map(lambda leaf, number=number: leaf[number], additions)
            )
        return x

    costs = []
    for function in (looped, unrolled):
        program = jax.make_jaxpr(function)(additions, jnp.ones((3, 8))).jaxpr
        costs.append(flops.gradient_flops(program, [True, True, False]))
    # A loop takes the gradient with respect to what the first turn gets, too: of x @ kernel and of
    # x @ a.
    of_first_turn = 2 * 3 * 8 * 8 + 2 * 3 * 8 * 2
    assert costs[0] == costs[1] + (of_first_turn if adds else 0)


def test_the_dearest_branch_of_a_condition_counts() -> None:
    kernel = jnp.ones((8, 8))

    def function(x: jax.Array) -> jax.Array:
        return jax.lax.cond(x[0, 0] > 0, lambda x: x @ kernel @ kernel, lambda x: x @ kernel, x)

    program = jax.make_jaxpr(function)(jnp.ones((3, 8))).jaxpr

    assert flops.product_flops(program, [True]) == (2 * 2 * 3 * 8 * 8, 2 * 2 * 3 * 8 * 8)


def test_a_convolution_counts_two_for_each_pair_of_factors() -> None:
    """Its result has 5 x 4 positions of 6 features, each a sum of 3 x 2 x 7 products."""
    picture = jnp.ones((2, 5, 4, 7))
    kernel = jnp.ones((3, 2, 7, 6))

    def function(kernel: jax.Array) -> jax.Array:
        axes = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(picture, kernel, (1, 1), "SAME", dimension_numbers=axes)

    program = jax.make_jaxpr(function)(kernel).jaxpr
    forward = 2 * (2 * 5 * 4 * 6) * (3 * 2 * 7)

    assert flops.product_flops(program, [True])[0] == forward
