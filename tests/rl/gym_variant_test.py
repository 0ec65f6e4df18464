"""`train_agent.py:gym` and `gym_pixels` fit machines and environments of any size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from motif_jax.core.metrics import read_metrics
from motif_jax.rl import settings
from motif_jax.rl.config import agent_config
from tests.reward_fixtures import REPOSITORY, load_config, run_stage

CATCH = {"environment.name": "gym:CatchPixels-v0", "environment.modules": "catch_pixels"}
ROOM = {
    "environment.wrappers": "minigrid.wrappers:RGBImgPartialObsWrapper,minigrid.wrappers:ImgObsWrapper",
}
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


@pytest.mark.extra
def test_it_is_allowed_on_a_machine_of_many_cores() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK.format(cores=16)], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of the environments are there, and may be imported."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "docs" / "examples"))
    monkeypatch.setenv("MOTIF_JAX_TRUST", "catch_pixels,minigrid,minigrid.wrappers")


@pytest.mark.parametrize(("environment", "shape"), [(CATCH, (64, 64, 3)), (ROOM, (56, 56, 3))])
def test_pictures_of_any_size_are_allowed(
    environment: dict[str, str], shape: tuple[int, ...], trusted: None
) -> None:
    config = settings.check(agent_config(load_config("train_agent", "gym_pixels", environment)))

    spec = settings.make_network(config).spec
    assert spec.image_fields == ("observation",)
    assert spec.observation["observation"].shape == shape


@pytest.mark.extra
def test_it_trains_on_pictures(tmp_path: Path, trusted: None) -> None:
    sizes = {
        "train_for_env_steps": 256,
        "batch_size": 128,
        "rollout": 16,
        "actors.envs_per_worker": 8,
        "devices.learner": "0",
        "network.hidden_size": 16,
        "network.image_features": 16,
    }

    run_stage("train_agent", tmp_path / "agent", "gym_pixels", **CATCH, **sizes)

    rows = list(read_metrics(tmp_path / "agent"))
    assert rows[-1]["step"] >= 256
    assert 0 <= rows[-1]["episode/success"] <= 1
