"""Small configs of `train_agent` for tests."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from motif_jax.rl.config import AgentConfig, agent_config
from tests.reward_fixtures import load_config


def recall_config(**changes: Any) -> ConfigDict:
    """The `recall` variant at the size of a test; `changes` are dotted keys with '__' for the
    dots.
    """
    small = {
        "train_for_env_steps": 2_000, "batch_size": 128, "rollout": 8, "network__hidden_size": 16, "network__flat_sizes": (16,),
        "actors__workers": 2, "actors__envs_per_worker": 6, "devices__learner": "0",
    }  # fmt: skip
    return changed(load_config("train_agent", "recall"), **{**small, **changes})


def continuous_config(**changes: Any) -> ConfigDict:
    """The `gym` variant at the size of a test, where an arm of `tests.gym_toys` is to be pointed at
    a mark.
    """
    small = {
        "environment__name": "gym:ToyAim-v0", "environment__modules": "tests.gym_toys", "batch_size": 64, "rollout": 16,
        "network__hidden_size": 16, "network__flat_sizes": (16,), "actors__envs_per_worker": 4, "algorithm__minibatches": 2,
        "devices__learner": "0",
    }  # fmt: skip
    return changed(load_config("train_agent", "gym"), **{**small, **changes})


def recall_training(**changes: Any) -> AgentConfig:
    """`recall_config` in the form that everything below the stage takes."""
    return agent_config(recall_config(**changes))


def changed(config: ConfigDict, **changes: Any) -> ConfigDict:
    """The config, locked, with other values of dotted keys, '__' for the dots."""
    config.update_from_flattened_dict(
        {key.replace("__", "."): value for key, value in changes.items()}
    )
    return config.lock()
