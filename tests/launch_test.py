"""The command line as people use it: every mistake is one line and exit code 2, before any work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def launch(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "motif_jax.launch", *arguments],
        cwd=repository, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["--config is missing"]),
        (["--config=configs/none.py"], ["configs/none.py", "no file"]),
        (["--config=configs/collect.py:none"], ["'none'", "smoke"]),
        (["--config=configs/collect.py", "--config.sed=1"], ["config.sed", "config.seed"]),
        (["--config=configs/collect.py", "--config.seed=one"], ["config.seed", "one"]),
        (["--config=configs/collect.py", "--sed=1"], ["--sed"]),
        (["--config=configs/collect.py", "seed"], ["seed"]),
        (["--config=configs/collect.py"], ["--workdir is missing"]),
        (["--config=configs/benchmark.py:none"], ["config.name='none'", "reward"]),
    ],
)
def test_a_mistake_is_one_line(repository: Path, arguments: list[str], words: list[str]) -> None:
    done = launch(repository, *arguments)
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]


def test_help_names_stages_and_endings(repository: Path) -> None:
    done = launch(repository, "--help")
    assert done.returncode == 0
    for word in ("train_agent", "train_reward", "annotate", "--workdir", "75"):
        assert word in done.stdout


def test_print_config_shows_overrides(repository: Path) -> None:
    done = launch(repository, "--config=configs/collect.py:smoke", "--config.seed=41", "--print_config")
    assert done.returncode == 0
    assert "--config.seed=41" in done.stdout.splitlines()


def test_the_entry_point_is_light(repository: Path) -> None:
    """Spawned workers import it again: it must not bring jax, flax, nle or a plotting library."""
    heavy = "jax flax orbax nle matplotlib torch pandas pyarrow"
    code = f"import sys, motif_jax.launch; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
