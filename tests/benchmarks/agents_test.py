"""The benchmarks of the agent's training: their fields, rates, FLOPs and configs."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents, learning
from motif_jax.core import resources
from tests.clocks import TickingClock
from tests.reward_fixtures import load_config
from tests.sets import extra


@pytest.fixture(autouse=True)
def no_compile_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiled programs stay out of the user's cache folder, and out of the tests that follow."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inference", extra("learner"), extra("train")])
def test_a_benchmark_of_training_prints_its_fields(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_agents.PRODUCT_SIZE, "cpu", 256)
    calls_per_second = _agents.calls_per_second

    def hurried(call: Any, seconds: float) -> float:
        """No number here has to be exact, and some times are in no option."""
        return calls_per_second(call, min(seconds, 0.05))

    monkeypatch.setattr(_agents, "calls_per_second", hurried)
    config = load_config("benchmark", name, {"repeats": 2})
    sizes = {
        "env": "Recall-v0",
        "workers": 1,
        "envs_per_worker": 8,
        "batch_size": 256,
        "seconds": 0.05,
    }
    more = {"seconds": 0.5, "warmup_seconds": 0.1, "network": "recall", "beside": "minigrid"}
    config.options.update(sizes | (more if name == "train" else {}))
    line = importlib.import_module(f"motif_jax.benchmarks.{name}").run(config)
    assert line["value"] > 0
    assert line["baseline"]["value"] > 0
    if name == "train":
        assert 0 <= line["metrics"]["lag/mean"] < 20
        assert 0 < line["metrics"]["inference/act_share"] < 1
        assert 0 < line["launch_share"] < line["metrics"]["inference/host_share"]
        assert {"batcher", "inference 0"} < line["threads"].keys()


@pytest.fixture
def clock_of_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock whose readings are two seconds apart."""
    monkeypatch.setattr(_agents, "time", TickingClock(itertools.count(10.0, 2.0)))


@pytest.mark.usefixtures("clock_of_two_seconds")
def test_the_first_call_is_not_timed() -> None:
    calls: list[int] = []
    assert _agents.calls_per_second(lambda: calls.append(1), 6.0) == 3 / 6
    assert len(calls) == 4


@pytest.mark.usefixtures("clock_of_two_seconds")
def test_at_least_one_call_is_timed() -> None:
    assert _agents.calls_per_second(lambda: None, 0.0) == 1 / 2


def test_a_matrix_product_counts_two_operations_a_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_agents.PRODUCT_SIZE, "cpu", 3)
    monkeypatch.setattr(
        _agents, "calls_per_second", lambda call, seconds: call().size * call().itemsize * seconds
    )
    assert _agents.matrix_product_rate("bfloat16") == 2 * 3**3 * (9 * 2 * 0.5)


def test_flops_are_those_of_the_published_network() -> None:
    forward, update = _agents.network_flops(
        _agents.training_config(_agents.training_options(), seed=0)
    )
    convolutions = 17**2 * 32 * 8**2 * 3 + 7**2 * 64 * 4**2 * 32 + 3**2 * 128 * 3**2 * 64
    dense = 1152 * 512 + 27 * 128 + 128 * 128 + 256 * 128 + 128 * 128
    core = (512 + 128 + 27 + 128) * 3 * 512 + 512 * 3 * 512
    heads = 512 * 23 + 512
    assert math.isclose(forward, 2.0 * (convolutions + dense + core + heads))
    first_layers = 17**2 * 32 * 8**2 * 3 + 27 * 128 + 256 * 128
    assert math.isclose(update, 3.0 * forward - 2.0 * first_layers)


@pytest.mark.parametrize("name", learning.GOALS)
def test_trainings_have_the_options_and_one_device(name: str) -> None:
    goal = learning.GOALS[name]
    size = {"workers": 3, "envs_per_worker": 6, "batch_size": 96, "rollout": 8, "dtype": "bfloat16"}
    options = ConfigDict({**learning.options().to_dict(), **size, "env": name})
    training = _agents.training_config(options, 3, variant=goal.variant)
    assert (training.environment.name, training.seed) == (name, 3)
    assert (training.batch_size, training.rollout, training.network.dtype) == (96, 8, "bfloat16")
    assert (training.actors.workers, training.actors.envs_per_worker) == (3, 6)
    assert (training.devices.learner, training.devices.actor) == ("0", "0")
    assert training.reward.intrinsic_coefficient == 0


def test_a_training_takes_a_variants_network_and_a_reward() -> None:
    folder = str(resources.path(learning.GOALS["MiniGrid-DoorKey-8x8-v0"].reward))
    changes = {"env": "MiniGrid-DoorKey-8x8-v0", "network": "recall", "reward_dir": folder}
    options = ConfigDict({**learning.options().to_dict(), **changes})
    training = _agents.training_config(options, 3, variant="minigrid")
    assert (
        training.network.hidden_size
        == resources.config("train_agent", "recall").network.hidden_size
    )
    assert training.reward.dir == folder
    assert training.reward.intrinsic_coefficient > 0
