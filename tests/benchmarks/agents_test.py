"""The benchmarks of the agent's training run, and give the fields that they promise."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents, learning
from motif_jax.rl import settings
from tests.reward_fixtures import load_config

_SMALL = {"env": "Recall-v0", "workers": 1, "envs_per_worker": 4, "batch_size": 128, "seconds": 0.05}
TINY: dict[str, dict[str, Any]] = {
    "actors": {"workers": 1, "envs_per_worker": 4, "rollout": 8, "steps": 40},
    "inference": _SMALL,
    "learner": _SMALL,
    "train": {
        **_SMALL, "envs_per_worker": 8, "batch_size": 256, "seconds": 0.5, "warmup_seconds": 0.1, "network": "recall", "beside": "minigrid"
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_compile_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiled programs stay out of the user's cache folder, and out of the tests that follow."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.extra if name == "train" else ()) for name in TINY]
)
def test_benchmark_gives_a_ratio_of_two_measurements(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_agents._PEAK_SIZE, "cpu", 256)
    timed = _agents.calls_per_second
    # No number is looked at that has to be exact, and some times are fixed where options say nothing of them.
    monkeypatch.setattr(_agents, "calls_per_second", lambda call, seconds: timed(call, min(seconds, 0.05)))
    config = load_config("benchmark", name, {"repeats": 2})
    config.options.update(TINY[name])
    line = importlib.import_module(f"motif_jax.benchmarks.{name}").run(config)
    assert line["benchmark"] == name
    assert line["value"] > 0
    assert line["baseline"]["value"] > 0
    assert line["ratio"] == pytest.approx(line["value"] / line["baseline"]["value"])
    assert line["spread"]["min"] <= line["spread"]["max"]
    assert line["settings"].items() >= TINY[name].items()
    if name == "train":
        metrics, throughput = line["metrics"], ("megabytes_per_second", "inference_megabytes_per_second")
        for part in ("inference/rows_per_call", *(f"throughput/{name}" for name in throughput)):
            assert metrics[part] > 0
        assert 0 <= metrics["lag/mean"] < 20
        assert 0 < metrics["inference/act_share"] < 1
        assert line["beside"]["value"] > 0
        assert line["beside"]["what"] == "the network of minigrid"
    if name == "actors":
        assert line["one_game"]["ratio"] == pytest.approx(line["value"] / line["one_game"]["value"])
        assert 0.1 < line["megabytes_per_game"] < 200


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


def test_a_training_to_a_goal_has_settings_of_its_own() -> None:
    for name, goal in learning.GOALS.items():
        options = {**learning.options().to_dict(), "env": name}
        made = _agents.training_config(ConfigDict(options), 3, variant=goal.variant)
        assert (made.environment.name, made.batch_size, made.seed) == (name, 512, 3)
