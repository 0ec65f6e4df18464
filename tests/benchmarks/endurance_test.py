"""Slopes and tables of the endurance benchmark, from samples that were made up, one of this process, and a short run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.benchmarks import endurance
from motif_jax.benchmarks.endurance import Table, slope_per_hour
from motif_jax.support.errors import UserError
from motif_jax.support.metrics import read_metrics
from tests.compiling import QUICKLY
from tests.processes import Program, descendants, still_there, wait_until


def sample(seconds: float, **rss: float) -> dict[str, Any]:
    processes = {
        name: {"rss": value, "memory": value / 2, "threads": 3, "files": 9} for name, value in rss.items()
    }
    return {
        "seconds": seconds,
        "processes": processes,
        "zombies": [],
        "shared_memory": 0,
        "disk": seconds / 10,
    }


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


def test_a_process_that_ends_while_it_is_looked_at_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(pid: int) -> float:
        raise ProcessLookupError  # what reading in /proc gives then

    monkeypatch.setattr(endurance, "_memory", ended)
    assert endurance._sample(os.getpid(), {os.getpid(): "learner"})["processes"] == {}


def test_shared_memory_of_other_programs_is_not_counted() -> None:
    code = (
        "import mmap, sys; file = open(sys.argv[1], 'w+b'); file.truncate(4096); memory = mmap.mmap(file.fileno(), 0);"
        "print('mapped', flush=True); input()"
    )
    before, name = endurance._shared_memory(), f"motif_jax_test_{os.getpid()}"
    program = subprocess.Popen(
        [sys.executable, "-c", code, f"/dev/shm/{name}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == b"mapped\n"
        assert name not in endurance._new_shared_memory(before)
        assert name in endurance._new_shared_memory(before, {program.pid})
        program.communicate(b"\n")
        assert name in endurance._new_shared_memory(before), "nobody's: it was left behind"
    finally:
        program.kill()
        program.communicate()
        Path(f"/dev/shm/{name}").unlink()


def test_shared_memory_that_goes_while_it_is_looked_for_is_not_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lists = [{"ours", "gone"}, {"ours"}]
    monkeypatch.setattr(endurance, "_shared_memory", lambda: lists.pop(0))
    assert endurance._new_shared_memory(set()) == {"ours"}


def test_the_processors_time_of_processes_that_have_ended_counts() -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print('done', flush=True); input()"
    program = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == b"done\n"
        sample = endurance._sample(program.pid, {program.pid: "program"})
        assert endurance._processor_seconds(sample) >= 0.4
        assert endurance._processor_seconds({"processes": {}}) == 0
    finally:
        program.communicate(b"\n")


OPTIONS = {
    "variant": "recall",
    "env": "Recall-v0",
    "workers": 2,
    "envs_per_worker": 8,
    "batch_size": 128,
    "rollout": 8,
}


@pytest.mark.parametrize("command", ["no_stage.py", "'train_agent.py", "' '"])
def test_commands_that_are_none_are_refused(command: str) -> None:
    options = endurance.options()
    options.command = command
    with pytest.raises(UserError, match=r"options\.command"):
        endurance.check(ConfigDict({"seed": 1, "options": options}))


@pytest.mark.slow
def test_a_killed_benchmark_leaves_no_training_and_no_temporary_folder(tmp_path: Path) -> None:
    temporary, out = tmp_path / "temporary", tmp_path / "out"
    temporary.mkdir()
    command = (
        "train_agent.py:recall --config.reward.intrinsic_coefficient=0 --config.actors.workers=2 "
        f"--config.actors.envs_per_worker=8 --config.train_for_env_steps={10**9}"
    )
    flags = [f"--config.options.folder={out}", f"--config.options.command={command}"]
    program = Program(
        [sys.executable, "-m", "motif_jax.launch", "--config=configs/benchmark.py:endurance", *flags],
        tmp_path / "log",
        {
            "TMPDIR": str(temporary),
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "1",
            **QUICKLY,
        },
    )
    left: set[int] = set()
    try:
        # Not their file, which is there before the actors are: a row says that these have played.
        wait_until(lambda: any(read_metrics(out / "run")), "the training's first metrics")
        left = descendants(program.pid)
        program.send(signal.SIGKILL)
        program.wait()
        wait_until(lambda: not still_there(left), "the training's end")
    finally:
        for pid in still_there({program.pid, *left}):
            os.kill(pid, signal.SIGKILL)
    assert len(left) >= 3, "the training and its two actors"
    assert "saving and stopping" in (out / "log.txt").read_text()
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_a_short_training_is_watched_plotted_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "1")
    for name, value in QUICKLY.items():
        monkeypatch.setenv(name, value)
    clock = SimpleNamespace(seconds=0.0, runs=False)

    def sleep(seconds: float) -> None:
        """Moves a clock on that stands still until the actors have played, however long that takes."""
        time.sleep(min(seconds, 0.1))
        clock.runs = clock.runs or any(read_metrics(tmp_path / "out" / "run"))
        clock.seconds += seconds if clock.runs else 0.0

    monkeypatch.setattr(endurance, "time", SimpleNamespace(monotonic=lambda: clock.seconds, sleep=sleep))
    # Left as soon as nothing is there any more.
    monkeypatch.setattr(endurance, "_LINGER_SECONDS", 600.0)
    options = endurance.options()
    options.update(
        {
            "minutes": 0.15,
            "sample_seconds": 0.5,
            "warmup_share": 0.3,
            "folder": str(tmp_path / "out"),
            **OPTIONS,
        }
    )
    line = endurance.run(ConfigDict({"seed": 1, "options": options}))
    assert (line["exit_code"], line["left_behind"], line["zombies"]) == (75, [], 0)
    assert line["actor_restarts"] == line["shared_memory_files"] == 0
    assert line["steps"] > 0
    names = {"learner", "fork server", *(f"actor {number}" for number in range(4))}
    assert set(line["memory_mb"]) == names
    assert set(line["slope_mb_per_hour"]) == set(line["largest_memory_mb"]) == {*names, "all together"}
    assert line["largest_memory_mb"]["all together"] >= line["value"]
    assert line["largest_memory_mb"]["all together"] >= line["largest_memory_mb"]["learner"] > 0
    assert line["value"] == pytest.approx(line["ratio"] * line["baseline"]["value"])
    assert line["value"] > 50
    assert line["processor_minutes"] > 0
    # At either end an old checkpoint may have gone, or a new one may be half there.
    assert min(line["disk_mb"]) > 0
    samples = json.loads((tmp_path / "out" / "samples.json").read_text())
    assert len(samples) >= 10
    assert (tmp_path / "out" / "disk.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "memory.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "memory.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(UserError, match="holds a run already"):
        endurance.run(ConfigDict({"seed": 1, "options": options}))
