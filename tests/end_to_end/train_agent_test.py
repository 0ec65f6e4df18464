"""`train_agent` through the real flags, in processes of its own."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from motif_jax.support.interruption import EXIT_CODE
from tests.compiling import QUICKLY
from tests.processes import process_table, unused_shared_memory, wait_until

REPOSITORY = Path(__file__).parents[2]


def command(variant: str, workdir: Path, **flags: object) -> list[str]:
    # Compiled programs are those of all tests.
    changes = [
        f"--config.{key.replace('__', '.')}={value}" for key, value in {"compile_cache": "", **flags}.items()
    ]
    launch = [sys.executable, "-m", "motif_jax.launch", f"--config=configs/train_agent.py:{variant}"]
    return [*launch, f"--workdir={workdir}", *changes]


def start(variant: str, workdir: Path, **flags: object) -> subprocess.Popen[str]:
    # Few steps take longer to compile than to run; those that an agent learns in do not.
    quick = QUICKLY if variant == "smoke" else {}
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "1", **quick}
    return subprocess.Popen(
        command(variant, workdir, **flags),
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 500.0) -> str:
    output, _ = process.communicate(timeout=seconds)
    return output


def checkpoint_steps(workdir: Path) -> list[int]:
    folder = workdir / "checkpoints"
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit()) if folder.exists() else []


def metrics(workdir: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def wait_for_checkpoint(workdir: Path, process: subprocess.Popen[str], above: int = 0) -> int:
    deadline = time.monotonic() + 500
    while not (steps := [step for step in checkpoint_steps(workdir) if step > above]):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.1)
    return steps[-1]


def alive(pids: list[int]) -> list[int]:
    table = process_table()
    return [pid for pid in pids if pid in table and table[pid][1] != "Z"]


@pytest.fixture(scope="module")
def recall_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the run folder of the `recall` variant trained for 120,000 steps in a precision, once for all tests."""

    @functools.cache
    def train(dtype: str) -> Path:
        workdir = tmp_path_factory.mktemp(dtype) / "run"
        # As many environments on any machine: the more there are, the older is the policy that acts, and the later it learns.
        steps = {"train_for_env_steps": 120_000, "save_every_steps": 50_000, "actors__workers": 1}
        process = start("recall", workdir, **steps, network__dtype=dtype)
        output = finish(process)
        assert process.returncode == 0, output
        return workdir

    return train


@pytest.mark.extra
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_system_learns_to_remember(dtype: str, recall_run: Callable[[str], Path]) -> None:
    """The full system with processes reaches 95 % of the best return within 300,000 steps, in both precisions."""
    workdir = recall_run(dtype)
    last = metrics(workdir)[-1]
    assert last["step"] <= 300_000
    assert last["episode/return"] >= 0.95
    # Not the first row's, which a fast machine may write when it has learned.
    assert return_curve(workdir, 5_000, 5_000)[0] < 0.6


def return_curve(workdir: Path, width: int, until: int) -> np.ndarray:
    """Mean returns of the episodes that ended in steps [0, width), [width, 2 width), ... up to `until`."""
    rows = [json.loads(line) for line in (workdir / "episodes.jsonl").read_text().splitlines()]
    place = np.array([row["step"] // width for row in rows])
    returns = np.array([row["return"] for row in rows])
    return np.array([returns[place == number].mean() for number in range(until // width)])


@pytest.mark.slow
def test_stopped_and_killed_runs_go_on_with_the_same_command(tmp_path: Path) -> None:
    tmp_path = tmp_path / "run"
    flags = {"environment__name": "Recall-v0", "train_for_env_steps": 10**9, "save_every_steps": 2_000}
    shared_before = unused_shared_memory()
    process = start("smoke", tmp_path, **flags)
    wait_for_checkpoint(tmp_path, process)
    process.send_signal(signal.SIGTERM)
    output = finish(process)
    assert process.returncode == EXIT_CODE == 75, output
    assert "SIGTERM" in output
    stopped_at = checkpoint_steps(tmp_path)[-1]
    assert metrics(tmp_path)[-1]["step"] == stopped_at, "it saved where it stopped"

    process = start("smoke", tmp_path, **flags)
    killed_after = wait_for_checkpoint(tmp_path, process, above=stopped_at)
    children = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    assert len(children) >= 2
    process.kill()
    finish(process)
    wait_until(lambda: not alive(children), "the actors' end", 90)
    wait_until(lambda: unused_shared_memory() <= shared_before, "no shared memory is left", 90)

    kept = [step for step in checkpoint_steps(tmp_path) if step >= killed_after]
    flags["train_for_env_steps"] = kept[-1] + 1_000
    process = start("smoke", tmp_path, **flags)
    output = finish(process)
    assert process.returncode == 0, output
    steps = [row["step"] for row in metrics(tmp_path)]
    assert steps == sorted(set(steps))
    assert steps[-1] >= kept[-1] + 1_000
    rows = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    played = [(row["env"], row["episode"]) for row in rows]
    assert len(set(played)) == len(played)


@pytest.mark.slow
def test_smoke_plays_nethack_and_writes_a_trace(tmp_path: Path) -> None:
    tmp_path = tmp_path / "run"
    process = start("smoke", tmp_path, profile__start=2, profile__steps=3)
    output = finish(process)
    assert process.returncode == 0, output
    row = metrics(tmp_path)[-1]
    assert row["step"] >= 2_048
    assert row["lag/max"] >= 0
    episodes = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    names = (
        "return length score dlvl gold xlvl scout turns success end intrinsic_return seed env step".split()
    )
    assert episodes, "a game ends after 100 steps"
    assert all(set(names) <= set(episode) for episode in episodes)
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))
    assert {"config.json", "versions.json", "tensorboard"} <= {path.name for path in tmp_path.iterdir()}
