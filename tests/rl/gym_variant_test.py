"""`train_agent.py:gym` fits machines of any size."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The number of workers is a default of the machine, and is read when the package is imported.
CHECK = """
from motif_jax.core import config
config.available_cores = lambda: {cores}
from motif_jax.core import resources
from motif_jax.rl import settings
from motif_jax.rl.config import agent_config
assert resources.config("train_agent", "quickstart").actors.workers == {cores} - 1
settings.check(agent_config(resources.config("train_agent", "gym")))
"""


@pytest.mark.slow
def test_it_is_allowed_on_a_machine_of_many_cores() -> None:
    done = subprocess.run([sys.executable, "-c", CHECK.format(cores=16)], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
