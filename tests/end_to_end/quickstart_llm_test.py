"""launch/quickstart_llm.sh with a model of made-up weights, on small datasets and short
trainings.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import made_up_judge
from tests.processes import REPOSITORY

SCRIPT = "launch/quickstart_llm.sh"
SMALL = {"PAIRS": "120", "STEPS": "2048", "GAMES": "4"}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose environment is there: this one's Python, and the stamp of a finished
    installation.
    """
    folder = tmp_path / "clone"
    shutil.copytree(REPOSITORY / "launch", folder / "launch")
    shutil.copy(REPOSITORY / "setup.cfg", folder)
    for name in ("motif_jax", "configs"):
        (folder / name).symlink_to(REPOSITORY / name)
    python = folder / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    installed = [folder / "setup.cfg", *sorted((folder / "launch").glob("requirements*.txt"))]
    stamp = hashlib.sha256(b"".join(path.read_bytes() for path in installed)).hexdigest()
    (folder / ".venv/motif_jax.stamp").write_text(stamp)
    return folder


def run_quickstart(clone: Path, model: Path, runs: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", SCRIPT, str(model), str(runs)]
    return subprocess.run(
        command, cwd=clone, env={**os.environ, **SMALL}, capture_output=True, text=True, check=False
    )


@pytest.mark.extra
@pytest.mark.timeout(1800)
def test_a_local_model_judges_both_games_to_the_report(clone: Path, tmp_path: Path) -> None:
    model = made_up_judge.write(tmp_path / "made-up", decided=True)
    runs = tmp_path / "runs"

    done = run_quickstart(clone, model, runs)

    assert done.returncode == 0, done.stderr
    for game in ("doorkey", "nethack"):
        probe = json.loads((runs / game / "probe/probe.json").read_text())
        assert probe["answers"] == 60
        assert (runs / game / "likes/explain.html").is_file()
        report = (runs / game / "report/report.md").read_text()
        assert all(f"episodes of {name}" in report for name in ("agent", "random", "control"))
    likes, training = (
        done.stdout.index(stage)
        for stage in ("== configs/explain_reward.py", "== configs/train_agent.py")
    )
    assert likes < training
