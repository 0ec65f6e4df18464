"""SIGKILL at random moments, many times: the labels equal those of an undisturbed run, and little is asked twice."""

from __future__ import annotations

import random
import signal
import subprocess
import time

import numpy as np
import pytest

from motif_jax.support.checked_lines import read_lines
from motif_jax.support.interruption import EXIT_CODE
from tests.end_to_end.annotate_datasets import (
    REPOSITORY,
    command,
    drawn_pairs,
    on_a_slow_disk,
    run_stage,
    summary,
    write_dataset,
)

NAME = "lexicon_msg_defaultgoal"
# Every answer is written on its own, so that a kill finds a write under way.
SLOW = "--config.flush_seconds=0"
# About as many questions, which take 6 seconds on any machine (`on_a_slow_disk`).
PAIRS = drawn_pairs(800, length=160)


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*.jsonl"))


def kill_soon(process, dataset, rng):
    """Kills a process a little after it began to write; False if it ended by itself before."""
    before = size(dataset)
    while size(dataset) == before:
        if process.poll() is not None:
            return False
        time.sleep(0.002)
    time.sleep(rng.random() * 0.06)
    process.send_signal(signal.SIGKILL)
    return process.wait(500) == -signal.SIGKILL


def undisturbed(tmp_path, pairs):
    dataset = write_dataset(tmp_path / "undisturbed", pairs)
    run_stage(dataset, tmp_path / "undisturbed_run", tmp_path / "undisturbed_store")
    return np.load(dataset / "preference" / f"{NAME}.npy")


@pytest.mark.slow
def test_killed_many_times(tmp_path):
    shards = 2
    dataset, environment = write_dataset(tmp_path / "dataset", PAIRS), on_a_slow_disk(tmp_path)
    rng = random.Random(shards)
    kills = 0
    waiting = list(range(shards))
    while waiting:
        processes = {
            index: subprocess.Popen(
                command(
                    dataset,
                    tmp_path / f"run{index}",
                    tmp_path / "store",
                    SLOW,
                    f"--config.num_shards={shards}",
                    f"--config.shard_index={index}",
                ),
                cwd=REPOSITORY,
                env=environment,
                stderr=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            for index in waiting
        }
        if kills < 5:
            kills += sum([kill_soon(process, dataset, rng) for process in processes.values()])
        codes = {index: process.wait(500) for index, process in processes.items()}
        assert set(codes.values()) <= {0, -signal.SIGKILL}
        waiting = [index for index, code in codes.items() if code != 0]
    assert kills >= 4
    assert (np.load(dataset / "preference" / f"{NAME}.npy") == undisturbed(tmp_path, PAIRS)).all()
    # A kill loses what was being written and no more.
    lines = sum(1 for path in (tmp_path / "store").glob("*.jsonl") for _ in read_lines(path))
    questions = summary(tmp_path / "run0")["dataset_questions"]
    assert questions <= lines <= questions + kills


def test_asked_to_stop_it_writes_and_says_so(tmp_path):
    dataset = write_dataset(tmp_path / "dataset", PAIRS)
    line = command(dataset, tmp_path / "run", tmp_path / "store", SLOW)
    process = subprocess.Popen(
        line, cwd=REPOSITORY, env=on_a_slow_disk(tmp_path), stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 500
    while size(dataset) == 0 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    error = process.communicate(timeout=500)[1]
    assert process.returncode == EXIT_CODE, error
    stopped = summary(tmp_path / "run")
    assert not stopped["finished"]
    assert stopped["asked"] > 0
    run_stage(dataset, tmp_path / "run", tmp_path / "store")
    assert summary(tmp_path / "run")["store_hits"] == stopped["asked"]
