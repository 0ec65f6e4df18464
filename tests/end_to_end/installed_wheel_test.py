"""The built package works where the repository is not: configs, prompts and tiles come with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.processes import REPOSITORY

LABELS = "lexicon_msg_defaultgoal"


def run(command: list[str | Path], folder: Path) -> str:
    """Runs a program that has nothing of these tests' environment; returns what it printed."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """The interpreter of an environment with the source distribution's wheel, into which the
    packages that it needs are shown.
    """
    source = tmp_path_factory.mktemp("source")
    folder = tmp_path_factory.mktemp("environment")
    for name in ("motif_jax", "configs", "docs/examples/doorkey", "third_party"):
        shutil.copytree(
            REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    run([sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", folder], source)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    archives = [*folder.glob("*.tar.gz")]
    run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, *archives],
        folder,
    )
    run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    run([*pip, "--python", python, "install", "--no-deps", *folder.glob("*.whl")], folder)
    # A line of a .pth file shows the folder alone: what is installed there as editable is not found
    # by it.
    packages = Path(
        run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder
        ).strip()
    )
    (packages / "packages_of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.extra
def test_smoke_variants_run_from_an_empty_folder(python, tmp_path):
    # The revision of whatever repository lies around it says nothing about the package.
    run(["git", "init", "--quiet"], tmp_path)
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody"]
    run(["git", *identity, "commit", "--quiet", "--allow-empty", "--message=nothing"], tmp_path)
    installed = Path(
        run([python, "-c", "import motif_jax; print(motif_jax.__path__[0])"], tmp_path).strip()
    )
    assert installed.is_relative_to(python.parents[1])

    copied = [
        installed / "_copies" / file.relative_to(REPOSITORY)
        for file in (REPOSITORY / "configs").rglob("*.yaml")
    ]
    assert all(file.is_file() for file in copied)

    doorkey = installed / "_copies/docs/examples/doorkey"
    assert len([*doorkey.rglob("*")]) == len([*(REPOSITORY / "docs/examples/doorkey").rglob("*")])

    def stage(name: str, workdir: str, *flags: str) -> None:
        config = f"--config=configs/{name}.py:smoke"
        run([python, "-m", "motif_jax.launch", config, f"--workdir={workdir}", *flags], tmp_path)

    stage("collect", "data")
    stage("annotate", "annotate", "--config.dataset_dir=data", "--config.store_dir=answers")
    stage("train_reward", "reward", "--config.dataset_dir=data", f"--config.annotator={LABELS}")
    stage(
        "train_agent",
        "agent",
        "--config.reward.dir=reward",
        "--config.reward.intrinsic_coefficient=0.1",
    )
    stage("evaluate", "evaluate", "--config.policy=agent", "--config.agent.dir=agent")
    assert json.loads((tmp_path / "evaluate" / "evaluation.json").read_text())["episodes"] == 4
    stage("visualize", "film", f"--config.policy={doorkey}")
    assert "success" in json.loads((tmp_path / "film" / "episode-00000.json").read_text())["info"]
    assert not (tmp_path / "configs").exists()
    versions = json.loads((tmp_path / "agent" / "versions.json").read_text())
    assert versions["git_revision"] == "unknown"
    assert f"--config={installed}/" in versions["command"]
    shown = run([python, "-m", "motif_jax.launch", "--config=configs/annotate.py", "--workdir=asked",
                 "--config.dataset_dir=data", "--config.annotator=openai", "--config.openai.model=m",
                 "--config.prompt.version=reworded", "--config.dry_run"], tmp_path)  # fmt: skip
    assert "system" in shown.lower()
