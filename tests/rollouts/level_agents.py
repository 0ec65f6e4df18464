"""Agents of levels of BabyAI-Text that were never trained, for tests of where they can play."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import optax

from motif_jax.algorithms.appo import make_state
from motif_jax.envs import registry
from motif_jax.networks.agent import make_agent_network
from motif_jax.rl import agent_checkpoints
from motif_jax.rollouts import agent_policy
from motif_jax.support import run_folder
from tests.reward_fixtures import load_config


def write(folder: Path, seed: int = 0, **changes: Any) -> str:
    """Writes an agent run with one checkpoint, 100; `changes` are keys of its config with '__' for the dots."""
    folder.mkdir()
    config = load_config("train_agent", "symbolic")
    config.reward.intrinsic_coefficient = 0.0
    config.update_from_flattened_dict({key.replace("__", "."): value for key, value in changes.items()})
    (folder / "config.json").write_text(json.dumps(run_folder.as_plain(config)))
    name, options = agent_policy.environment_of(config)
    network = make_agent_network(config.network, registry.spec(name, **options))
    state = make_state(network, optax.sgd(0.1), jax.random.PRNGKey(seed))
    with agent_checkpoints.open_checkpoints(folder, 5) as checkpoints:
        items = agent_checkpoints.items_of_learner(state)
        agent_checkpoints.save(checkpoints, 100, items, {"steps": 100}, {}, asynchronous=False)
    return str(folder)
