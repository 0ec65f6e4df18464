"""Slopes and tables of the endurance benchmark, from samples that were made up, one of this process, and a short run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.benchmarks import endurance
from motif_jax.benchmarks.endurance import Table, slope_per_hour
from motif_jax.support.errors import UserError


def sample(seconds: float, **rss: float) -> dict[str, Any]:
    processes = {
        name: {"rss": value, "memory": value / 2, "threads": 3, "files": 9} for name, value in rss.items()
    }
    return {"seconds": seconds, "processes": processes, "zombies": 0, "shared_memory": 0}


def test_a_leak_of_a_megabyte_a_minute_is_sixty_an_hour() -> None:
    seconds = np.arange(0.0, 600.0, 5.0)
    noise = np.random.default_rng(0).normal(0, 0.1, len(seconds))
    assert slope_per_hour(seconds, 500 + seconds / 60 + noise) == pytest.approx(60, abs=0.5)
    assert slope_per_hour(seconds, 500 + noise) == pytest.approx(0, abs=0.5)


def test_tables_hold_the_processes_that_stay() -> None:
    samples = [
        sample(0, learner=100, helper=5),
        *[
            sample(60 * n, **{"learner": 200 + n, "actor 0": 50, "actor 10": 51, "actor 2": 52})
            for n in (1, 2, 3)
        ],
    ]
    assert Table(samples).names == ["learner"]
    late = Table(samples).after(60)
    assert late.names == ["learner", "actor 0", "actor 2", "actor 10"]
    np.testing.assert_array_equal(late.of("learner", "rss"), [201, 202, 203])
    np.testing.assert_array_equal(late.total("memory"), [(153 + 200 + n) / 2 for n in (1, 2, 3)])
    assert slope_per_hour(late.seconds, late.of("learner", "rss")) == pytest.approx(60)
    with pytest.raises(RuntimeError, match="more minutes"):
        Table(samples).after(1_000)


def test_a_sample_sees_a_process_and_its_children() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        names = {os.getpid(): "learner"}
        seen = endurance._sample(os.getpid(), names)
        assert {"learner", f"helper {child.pid}"} <= set(seen["processes"])
        numbers = seen["processes"]["learner"]
        assert numbers["rss"] > 10
        assert 0 < numbers["memory"] <= numbers["rss"] * 1.2
        assert numbers["threads"] >= 1
        assert numbers["files"] >= 3
    finally:
        child.communicate(b"\n")


@pytest.mark.slow
def test_a_short_training_is_watched_plotted_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "1")
    options = endurance.options()
    options.update(
        {
            "minutes": 0.5,
            "sample_seconds": 1.0,
            "warmup_share": 0.7,
            "folder": str(tmp_path / "out"),
            "variant": "recall",
            "env": "Recall-v0",
            "workers": 2,
            "envs_per_worker": 8,
            "batch_size": 128,
            "rollout": 8,
        }
    )
    line = endurance.run(ConfigDict({"seed": 1, "options": options}))
    assert (line["exit_code"], line["left_behind"], line["zombies"]) == (75, [], 0)
    assert line["actor_restarts"] == line["shared_memory_files"] == 0
    assert line["steps"] > 0
    names = {"learner", "actor 0", "actor 1"}
    assert set(line["memory_mb"]) == names
    assert set(line["slope_mb_per_hour"]) == {*names, "all together"}
    assert line["value"] == pytest.approx(line["ratio"] * line["baseline"]["value"])
    assert line["value"] > 50
    samples = json.loads((tmp_path / "out" / "samples.json").read_text())
    assert len(samples) >= 10
    assert (tmp_path / "out" / "memory.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "memory.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(UserError, match="holds a run already"):
        endurance.run(ConfigDict({"seed": 1, "options": options}))
