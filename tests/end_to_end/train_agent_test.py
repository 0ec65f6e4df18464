"""`train_agent` through the real flags, in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core.interruption import EXIT_CODE
from tests import reward_fixtures
from tests.force.outcomes import rows_of
from tests.processes import (
    Program,
    checkpoint_steps,
    descendants,
    ended,
    launch,
    still_there,
    unused_shared_memory,
    wait_until,
)


def start(variant: str, workdir: Path, **flags: object) -> Program:
    # Compiled programs are those of all tests.
    arguments = [f"--config.{key.replace('__', '.')}={value}" for key, value in flags.items()]
    # Few steps take longer to compile than to run; those that an agent learns in do not.
    variables = {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "0",
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }
    slow = {} if variant == "smoke" else variables
    log = workdir.with_name(f"{workdir.name}_log")
    return launch(workdir, f"train_agent.py:{variant}", *arguments, log=log, **slow)


def wait_for_checkpoint(workdir: Path, program: Program, above: int = 0) -> int:
    def comes() -> bool:
        assert program.process.poll() is None, program.text()
        return any(step > above for step in checkpoint_steps(workdir))

    wait_until(comes, f"a checkpoint above {above}")
    return checkpoint_steps(workdir)[-1]


@pytest.mark.extra
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_system_learns_to_remember(dtype: str, tmp_path: Path) -> None:
    """The full system with processes reaches 95 % of the best return within 120,000 steps, in both
    precisions.
    """
    # As many environments on any machine: the more there are, the older is the policy that acts,
    # and the later it learns.
    steps = {"train_for_env_steps": 120_000, "save_every_steps": 50_000, "actors__workers": 1}
    program = start("recall", tmp_path / "run", **steps, network__dtype=dtype)
    with ended([program]):
        assert program.wait() == 0, program.text()
    last = rows_of(tmp_path / "run" / "metrics.jsonl")[-1]
    assert last["step"] <= 300_000
    assert last["episode/return"] >= 0.95
    # Not the first row's, which a fast machine may write when it has learned.
    episodes = rows_of(tmp_path / "run" / "episodes.jsonl")
    assert np.mean([row["return"] for row in episodes if row["step"] < 5_000]) < 0.6


def test_stopped_and_killed_runs_go_on_with_the_same_command(tmp_path: Path) -> None:
    tmp_path = tmp_path / "run"
    flags = {
        "environment__name": "Recall-v0",
        "train_for_env_steps": 10**9,
        "save_every_steps": 2_000,
    }
    shared_before = unused_shared_memory()
    program = start("smoke", tmp_path, **flags)
    with ended([program]):
        wait_for_checkpoint(tmp_path, program)
        program.send(signal.SIGTERM)
        assert program.wait() == EXIT_CODE == 75, program.text()
    assert "SIGTERM" in program.text()
    stopped_at = checkpoint_steps(tmp_path)[-1]
    assert rows_of(tmp_path / "metrics.jsonl")[-1]["step"] == stopped_at, (
        "it saved where it stopped"
    )

    program = start("smoke", tmp_path, **flags)
    with ended([program]):
        killed_after = wait_for_checkpoint(tmp_path, program, above=stopped_at)
        children = descendants(program.pid)
        assert len(children) >= 2
        program.send(signal.SIGKILL)
        program.wait()
        wait_until(lambda: not still_there(children), "the actors' end", 90)
    wait_until(lambda: unused_shared_memory() <= shared_before, "no shared memory is left", 90)

    later_steps = [step for step in checkpoint_steps(tmp_path) if step >= killed_after]
    flags["train_for_env_steps"] = later_steps[-1] + 1_000
    program = start("smoke", tmp_path, **flags)
    with ended([program]):
        assert program.wait() == 0, program.text()
    steps = [row["step"] for row in rows_of(tmp_path / "metrics.jsonl")]
    assert steps == sorted(set(steps))
    assert steps[-1] >= later_steps[-1] + 1_000
    rows = rows_of(tmp_path / "episodes.jsonl")
    played = [(row["env"], row["episode"]) for row in rows]
    assert len(set(played)) == len(played)


@pytest.mark.extra
def test_a_stop_saves_although_nobody_reads_the_output(tmp_path: Path) -> None:
    """Ctrl-C ends the training's `tee`, too."""
    workdir = tmp_path / "run"
    values = {
        "environment.name": "Recall-v0",
        "train_for_env_steps": 10**9,
        "save_every_steps": 2_000,
    }
    flags = [f"--config.{key}={value}" for key, value in values.items()]
    program = subprocess.Popen(
        reward_fixtures.command("train_agent", workdir, *flags),
        env={**os.environ, **reward_fixtures.environment()}, cwd=reward_fixtures.REPOSITORY,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: checkpoint_steps(workdir), "a checkpoint")
    program.stdout.close()

    os.killpg(program.pid, signal.SIGINT)

    assert program.wait(500) == EXIT_CODE
    last_row = rows_of(workdir / "metrics.jsonl")[-1]
    assert checkpoint_steps(workdir)[-1] == last_row["step"]
