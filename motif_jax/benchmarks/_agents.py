"""Shared parts of the benchmarks of the agent's training: configs, FLOPs, the device's
matrix-product rate, timing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
from ml_collections import ConfigDict

from motif_jax.core import resources
from motif_jax.core.config import training_workers
from motif_jax.envs import registry
from motif_jax.nets.agent import make_agent_network
from motif_jax.nets.config import GameNetwork
from motif_jax.rl import agent_networks, model_flops, settings
from motif_jax.rl.batcher import Batch
from motif_jax.rl.config import AgentConfig, agent_config
from motif_jax.rl.system import System

# Large enough to keep a GPU busy; with four groups a core still has games to play while an update
# holds the GPU.
GPU_SIZE = {
    "batch_size": 16_384,
    "envs_per_worker": 80,
    "groups_per_worker": 4,
    "dtype": "bfloat16",
}
# rows of the matrices of `matrix_product_rate`
PRODUCT_SIZE = {"cpu": 1536, "gpu": 8192, "tpu": 8192}


def training_options(**more: Any) -> ConfigDict:
    """Options of a training of a size for a machine with few cores, and `more`; `network` names a
    variant of train_agent.
    """
    return ConfigDict(
        {
            "env": "NetHackScore-v1",
            "workers": training_workers(),
            "envs_per_worker": 40,
            "groups_per_worker": 2,
            "batch_size": 1024,
            "rollout": 32,
            "dtype": "float32",
            "reward_dir": "",
            "network": "",
            **more,
        }
    )


def training_config(options: ConfigDict, seed: int, variant: str = "") -> AgentConfig:
    """The resolved config of `train_agent` with these options, on one device, as the baseline
    is.
    """
    config = resources.config("train_agent", variant)
    config.seed = seed
    if options.network:
        config.network = resources.config("train_agent", options.network).network
    config.environment.name = options.env
    config.batch_size = options.batch_size
    config.rollout = options.rollout
    config.actors.workers = options.workers
    config.actors.envs_per_worker = options.envs_per_worker
    config.actors.groups_per_worker = options.groups_per_worker
    config.network.dtype = options.dtype
    config.devices.learner = "0"
    config.devices.actor = "0"
    if options.reward_dir:
        config.reward.dir = options.reward_dir
    else:
        config.reward.intrinsic_coefficient = 0.0
    # No checkpoint within the time that is measured.
    config.save_every_steps = config.train_for_env_steps
    training = agent_config(config)
    # Before the first computation.
    settings.configure_jax(training)
    return settings.check(training)


def update(system: System, batch: Batch) -> jax.Array:
    """Runs an update of the learner; returns an array that is ready when the update has ended."""
    system.learner.step(batch)
    system.learner.finish_update()
    return system.learner.state.step


def network_flops(config: AgentConfig) -> tuple[float, float]:
    """Floating-point operations of a row in products of the published network: (forward pass,
    forward pass and gradient).
    """
    assert isinstance(config.network, GameNetwork)
    spec = registry.spec(config.environment.name, **settings.training_options(config))
    network = make_agent_network(config.network, spec)
    return model_flops.row_flops(*agent_networks.published_form(config.network, network))


def matrix_product_rate(dtype: str, seconds: float = 0.5) -> float:
    """FLOP/s of large square matrix products of `dtype` on the first device."""
    size = PRODUCT_SIZE[jax.default_backend()]
    # Random numbers: a GPU multiplies equal ones faster, since they take less power.
    a = jax.random.normal(jax.random.PRNGKey(0), (size, size)).astype(dtype)
    multiply = jax.jit(lambda a, b: a @ b)
    return 2.0 * size**3 * calls_per_second(lambda: multiply(a, a), seconds)


def calls_per_second(call: Callable[[], Any], seconds: float) -> float:
    """Calls a second of `call`, each waited for, after one warm-up call; times at least one
    call.
    """
    jax.block_until_ready(call())
    count = 0
    elapsed = 0.0
    start = time.perf_counter()
    while count == 0 or elapsed < seconds:
        jax.block_until_ready(call())
        count += 1
        elapsed = time.perf_counter() - start
    return count / elapsed
