"""The engine benchmark through its flags: all sides play the same games, and the line has its fields."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize("games", [1, 3])
def test_the_line(games, repository):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "motif_jax.launch",
            "--config=configs/benchmark.py:engine",
            "--config.repeats=2",
            "--config.options.steps=900",
            f"--config.options.games={games}",
        ],
        capture_output=True,
        text=True,
        cwd=repository,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout.splitlines()[-1])
    assert line["benchmark"] == "engine"
    assert line["settings"]["games"] == games
    assert line["ratio"] == pytest.approx(line["value"] / line["baseline"]["value"])
    assert set(line["steps_per_second"]) == {"bare", "environment", "group", "bare_shared_code", "gymnasium"}
    assert min(line["steps_per_second"].values()) > 0
