"""Agent runs whose agents were never trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import optax

from motif_jax.core import run_folder
from motif_jax.envs import registry
from motif_jax.nets.agent import make_agent_network
from motif_jax.play import agent_policy
from motif_jax.rl import agent_checkpoints
from motif_jax.rl.algorithms.appo import AppoAlgorithm
from motif_jax.rl.config import AgentConfig, agent_config
from tests.reward_fixtures import load_config


def state_of(network: Any, step: int) -> Any:
    """The learner's state that `write` saves as `step`."""
    return AppoAlgorithm(AgentConfig(), network, optax.sgd(0.1)).init(jax.random.PRNGKey(step))


def write(folder: Path, variant: str, changes: dict[str, Any], returns: Any = None) -> Any:
    """Writes a run of a variant of train_agent with a checkpoint for each step of `returns`; gives
    its network.
    """
    config = load_config("train_agent", variant, changes)
    run_folder.describe(folder, run_folder.as_plain(config))
    training = agent_config(config)
    name, options = agent_policy.environment_of(training)
    section: Any = training.network
    network = make_agent_network(section, registry.spec(name, **options))
    with agent_checkpoints.open_checkpoints(folder, 5) as checkpoints:
        for step, score in (returns or {100: 0.9}).items():
            items = agent_checkpoints.items_of_learner(state_of(network, step))
            metrics = {"episode/return": score}
            agent_checkpoints.save(checkpoints, step, items, {"steps": step}, metrics, False)
    return network
