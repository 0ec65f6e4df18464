"""The benchmarks of the agent's training run, and give the fields that they promise."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents, learning
from motif_jax.rl import settings
from motif_jax.support import resources
from tests.reward_fixtures import load_config

TINY = {"env": "Recall-v0", "workers": 1, "envs_per_worker": 4, "batch_size": 128, "seconds": 0.05}
MORE = {
    "envs_per_worker": 8,
    "batch_size": 256,
    "seconds": 0.5,
    "warmup_seconds": 0.1,
    "network": "recall",
    "beside": "minigrid",
}


@pytest.fixture(autouse=True)
def no_compile_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiled programs stay out of the user's cache folder, and out of the tests that follow."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize("name", ["inference", "learner", pytest.param("train", marks=pytest.mark.extra)])
def test_benchmark_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_agents._PEAK_SIZE, "cpu", 256)
    timed = _agents.calls_per_second
    # No number is looked at that has to be exact, and some times are fixed where options say nothing of them.
    monkeypatch.setattr(_agents, "calls_per_second", lambda call, seconds: timed(call, min(seconds, 0.05)))
    config = load_config("benchmark", name, {"repeats": 2})
    config.options.update(TINY | (MORE if name == "train" else {}))
    line = importlib.import_module(f"motif_jax.benchmarks.{name}").run(config)
    assert line["value"] > 0
    assert line["baseline"]["value"] > 0
    if name == "train":
        metrics, throughput = line["metrics"], ("megabytes_per_second", "inference_megabytes_per_second")
        for part in ("inference/rows_per_call", *(f"throughput/{name}" for name in throughput)):
            assert metrics[part] > 0
        assert 0 <= metrics["lag/mean"] < 20
        assert 0 < metrics["inference/act_share"] < 1


def test_rates_by_a_clock_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = itertools.count(10.0, 2.0), []
    monkeypatch.setattr(_agents, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    assert _agents.calls_per_second(lambda: asked.append(1), 6.0) == 3 / 6
    assert len(asked) == 4
    assert _agents.calls_per_second(lambda: None, 0.0) == 1 / 2
    monkeypatch.setitem(_agents._PEAK_SIZE, "cpu", 3)
    monkeypatch.setattr(
        _agents, "calls_per_second", lambda call, seconds: call().size * call().itemsize * seconds
    )
    assert _agents.matrix_product_rate("bfloat16") == 2 * 3**3 * (9 * 2 * 0.5)


def test_flops_are_those_of_the_published_network() -> None:
    options = _agents.training_options()
    options.workers, options.envs_per_worker, options.batch_size = 1, 2, 128
    config = _agents.training_config(options, seed=0)
    assert (
        settings.learner_devices(config.devices)
        == settings.actor_devices(config.devices)
        == jax.devices()[:1]
    )
    forward, update = _agents.network_flops(config)
    convolutions = 17**2 * 32 * 8**2 * 3 + 7**2 * 64 * 4**2 * 32 + 3**2 * 128 * 3**2 * 64
    dense = 1152 * 512 + 27 * 128 + 128 * 128 + 256 * 128 + 128 * 128
    core = (512 + 128 + 27 + 128) * 3 * 512 + 512 * 3 * 512
    heads = 512 * 23 + 512
    assert math.isclose(forward, 2.0 * (convolutions + dense + core + heads))
    first_layers = 17**2 * 32 * 8**2 * 3 + 27 * 128 + 256 * 128
    assert math.isclose(update, 3.0 * forward - 2.0 * first_layers)


def test_a_training_has_the_options_and_one_device(tmp_path: Path) -> None:
    for name, goal in learning.GOALS.items():
        options = {**learning.options().to_dict(), "env": name, "workers": 3, "dtype": "bfloat16"}
        made = _agents.training_config(ConfigDict(options), 3, variant=goal.variant)
        own = resources.config("train_agent", goal.variant)
        found = made.environment.name, made.seed, made.batch_size, made.rollout, made.actors.workers
        assert found == (name, 3, 512, 16, 3)
        assert (made.actors.envs_per_worker, made.network.dtype) == (32, "bfloat16")
        assert (made.devices.learner, made.devices.actor) == ("0", "0")
        assert (made.reward.dir, made.reward.intrinsic_coefficient) == (None, 0)
        assert made.save_every_steps == made.train_for_env_steps == own.train_for_env_steps
        assert made.network.hidden_size == own.network.hidden_size
    options |= {"network": "recall", "reward_dir": str(resources.path(goal.reward))}
    made = _agents.training_config(ConfigDict(options), 3, variant=goal.variant)
    assert (made.reward.dir, made.reward.intrinsic_coefficient) == (
        options["reward_dir"],
        own.reward.intrinsic_coefficient,
    )
    assert (
        made.network.hidden_size
        == resources.config("train_agent", "recall").network.hidden_size
        != own.network.hidden_size
    )
