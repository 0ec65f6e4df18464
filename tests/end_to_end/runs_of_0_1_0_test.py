"""What version 0.1.0 left behind is taken up: its store is hit, its reward loads, its runs go on with the same command.

The runs and how they were made: `tests/fixtures/v0.1.0/README.md`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from motif_jax.reports import messages
from tests.compiling import QUICKLY
from tests.old_runs import unpack

REPOSITORY = Path(__file__).parents[2]
NAME = "lexicon_msg_defaultgoal"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A copy of the runs."""
    return unpack(tmp_path)


def go_on(runs: Path, folder: str, **environment: str) -> str:
    """Starts the command again that `folder` was made with; returns what it printed."""
    command = json.loads((runs / folder / "versions.json").read_text())["command"]
    return launch(runs, *shlex.split(command)[1:], **environment)


def launch(runs: Path, config: str, *flags: str, **environment: str) -> str:
    """Runs a stage in the folder of the runs; returns what it printed."""
    config = f"--config={REPOSITORY}/configs/{config.rpartition('configs/')[2]}"
    own = {"PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "motif_jax.launch", config, *flags],
        cwd=runs, capture_output=True, text=True, timeout=500, check=False, env={**os.environ, **own, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def json_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def episodes(path: Path) -> list[dict]:
    """An evaluation's episodes in their order, without what says when they were played."""
    rows = sorted(json_lines(path), key=lambda row: row["index"])
    return [{key: value for key, value in row.items() if not key.startswith("session")} for row in rows]


def test_a_finished_dataset_stays_and_its_answers_are_not_asked_again(runs):
    described = (runs / "dataset" / "dataset.json").read_bytes()
    go_on(runs, "dataset")
    assert (runs / "dataset" / "dataset.json").read_bytes() == described
    label_file = runs / "dataset" / "preference" / f"{NAME}.npy"
    labels = label_file.read_bytes()
    go_on(runs, "annotate")
    assert json.loads((runs / "annotate" / "summary.json").read_text())["asked"] == 0, "the shards are there"
    label_file.unlink()
    shutil.rmtree(runs / "dataset" / "annotations")
    go_on(runs, "annotate")
    summary = json.loads((runs / "annotate" / "summary.json").read_text())
    assert (summary["asked"], summary["store_hits"], summary["unknown_share"]) == (0, 62, 0)
    assert label_file.read_bytes() == labels


def values(runs: Path, wanted: dict[str, float]) -> np.ndarray:
    from motif_jax import rewards

    return np.asarray(rewards.load(runs / "reward")(list(wanted)))


@pytest.mark.slow
def test_a_reward_loads_and_its_training_goes_on_to_the_same_end(runs):
    expected = json.loads((runs / "reward_values.json").read_text())
    assert values(runs, expected["stopped"]) == pytest.approx([*expected["stopped"].values()], rel=1e-5)
    go_on(runs, "reward")
    assert values(runs, expected["ended"]) == pytest.approx([*expected["ended"].values()], rel=1e-3)
    table = (runs / "reward" / "train_metrics.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in table] == ["epoch", "1", "2", "3"]


@pytest.mark.slow
def test_an_agent_goes_on_and_is_evaluated(runs):
    before = json_lines(runs / "agent" / "metrics.jsonl")
    played = len(json_lines(runs / "agent" / "episodes.jsonl"))
    assert before[-1]["step"] == 1648
    go_on(runs, "agent", **QUICKLY)  # no numbers of then are compared
    after = json_lines(runs / "agent" / "metrics.jsonl")
    assert after[: len(before)] == before
    assert after[len(before)]["step"] > 1648
    assert after[-1]["step"] >= 4096
    assert {*before[-1]} <= {*after[-1]}, "every curve goes on"
    assert len(json_lines(runs / "agent" / "episodes.jsonl")) > played
    flags = ("--config.policy=agent", "--config.agent.dir=agent", "--config.episodes=2")
    launch(runs, "--config=configs/evaluate.py:smoke", "--workdir=of_the_agent", *flags, **QUICKLY)
    rows = episodes(runs / "of_the_agent" / "episodes.jsonl")
    assert [row["index"] for row in rows] == [0, 1]
    assert all(np.isfinite(row["intrinsic_return"]) for row in rows), (
        "with the reward that it was trained with"
    )


@pytest.mark.slow
def test_an_agent_is_evaluated_as_it_is(runs):
    flags = ("--config.policy=agent", "--config.agent.dir=agent", "--config.episodes=2")
    printed = launch(runs, "--config=configs/evaluate.py:smoke", "--workdir=of_the_agent", *flags, **QUICKLY)
    assert re.search(r"intrinsic reward:\s+reward, evaluation 1", printed)
    assert len(episodes(runs / "of_the_agent" / "episodes.jsonl")) == 2


def test_the_pages_say_how_to_read_them(runs, monkeypatch):
    (runs / "runs").symlink_to(runs)
    monkeypatch.chdir(runs)
    names: dict[str, object] = {}
    for page in ("README.md", "docs/library.md"):
        blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), re.DOTALL)
        exec(blocks[-1], names)  # of the library's page the last one reads a checkpoint
    assert "actor" in names["params"]
    assert names["reward"]("It's a wall.") < 0


@pytest.mark.slow
def test_a_stopped_evaluation_goes_on_to_the_same_episodes(runs):
    path = runs / "evaluation" / "episodes.jsonl"
    before = path.read_bytes()
    whole = episodes(runs / "whole_evaluation.jsonl")
    assert 0 < len(episodes(path)) < len(whole)
    go_on(runs, "evaluation")
    assert path.read_bytes().startswith(before)
    intrinsic = ("intrinsic_return", "intrinsic_return_uncounted")
    for row, theirs in zip(episodes(path), whole, strict=True):
        for key in intrinsic:
            assert row.pop(key) == pytest.approx(theirs.pop(key), rel=1e-4, abs=1e-4)
        # 0.1.0 rounded a message's reward by the number of messages beside it.
        for tally, other in zip(
            messages.unpack(row.pop("messages")), messages.unpack(theirs.pop("messages")), strict=True
        ):
            assert (tally.text, tally.count) == (other.text, other.count)
            assert (tally.reward, tally.total) == pytest.approx(
                (other.reward, other.total), rel=1e-4, abs=1e-4
            )
        # Counted since then, in the games that are played now.
        assert row.pop("kills", 0.0) >= 0
        assert row == theirs
