"""Weights & Biases as it is installed, offline: what a training of each kind writes, also when it
continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb

from motif_jax.core.metrics import MetricsWriter
from tests.ilql.train_text_test import config_of, toy_data
from tests.reward_fixtures import run_config

# Of the whole file, so that the quick tests do not import wandb, which takes most of a second in
# each process of theirs.
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    yield
    wandb.teardown()  # a process reads the environment once


def written(folder: Path) -> list[bytes]:
    """The records of the runs in a run folder, oldest first; wandb's service may write until its
    end.
    """
    wandb.teardown()
    return [path.read_bytes() for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb"))]


@pytest.mark.extra
def test_a_training_writes_its_metrics(tmp_path: Path) -> None:
    config = config_of("bc", data=str(toy_data(tmp_path)))
    with config.unlocked():
        config.wandb.update({"enabled": True, "project": "tests"})
    (run,) = written(run_config(config, tmp_path / "run"))
    assert all(word in run for word in (b"evaluation/seconds", b"tests"))
    name = (tmp_path / "run/wandb_id.txt").read_bytes()
    with MetricsWriter(tmp_path / "run", 3, {"project": "tests"}) as metrics:
        metrics.write(3, {"bad": float("inf")})
    assert [name in run for run in written(tmp_path / "run")] == [True, True]
