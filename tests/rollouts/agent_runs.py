"""Small configs of `train_agent` for tests."""

from __future__ import annotations

import copy
import functools
import runpy
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

CONFIG = Path(__file__).parents[2] / "configs" / "train_agent.py"


@functools.cache
def _variant() -> ConfigDict:
    """What the file gives: to run it takes three times as long as to copy that."""
    config: ConfigDict = runpy.run_path(str(CONFIG))["get_config"]("recall")
    return config


def recall_config(**changes: Any) -> ConfigDict:
    """The `recall` variant at the size of a test; `changes` are dotted keys with '__' for the dots."""
    config = copy.deepcopy(_variant())
    config.train_for_env_steps = 2_000
    config.batch_size = 128
    config.rollout = 8
    config.network.hidden_size = 16
    config.network.flat_sizes = (16,)
    config.actors.workers = 2
    config.actors.envs_per_worker = 6
    config.devices.learner = "0"
    config.compile_cache = ""
    for key, value in changes.items():
        *path, name = key.split("__")
        section = config
        for part in path:
            section = section[part]
        section[name] = value
    return config.lock()
