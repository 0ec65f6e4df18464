"""A call for a GPU's figures: what it refuses before any item, and what earlier calls have left."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

# The scripts of launch/ import each other by their names.
sys.path.insert(0, str(REPOSITORY / "launch"))
gpu_figures = importlib.import_module("gpu_figures")


def options_of(*flags: str) -> Any:
    return gpu_figures.parser().parse_args(["--work=work", "--out=out", *flags])


@pytest.mark.parametrize("flags", [(), ("--plan=language", "--apart"), ("--items=train,absent",)])
def test_a_call_that_cannot_fit_is_refused(flags: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as error:
        gpu_figures.chosen_plans(options_of(*flags))
    assert error.value.code == 2


def test_items_run_in_the_order_of_the_plans() -> None:
    chosen = gpu_figures.chosen_plans(
        options_of("--items=score_cublas_cold,numeric_tests,train,score_cold")
    )
    assert [[item.name for item in plan.items()] for plan in chosen] == [
        ["train"],
        ["score_cold", "numeric_tests", "score_cublas_cold"],
    ]


def refused_call(tmp_path: Path, *flags: str, module: str, text: str) -> str:
    """What the script says before any item, where a package's text is another; of a copy, since a
    checkout may have wheels.
    """
    package = tmp_path / "site" / module
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text)
    folders = {"OUT": str(tmp_path / "out"), "GPU_FIGURES_WORK": str(tmp_path / "work")}
    environment = {
        **os.environ,
        **folders,
        "PYTHON": sys.executable,
        "PYTHONPATH": str(package.parent),
    }
    environment.pop("JAX_PLATFORMS", None)
    script = tmp_path / "launch" / "gpu_figures.sh"
    script.parent.mkdir()
    shutil.copy(REPOSITORY / "launch" / script.name, script)
    command = ["bash", str(script), *flags]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert not (tmp_path / "out" / "figures.jsonl").exists()
    return done.stderr


def test_a_missing_package_is_named_before_any_item(tmp_path: Path) -> None:
    text = "raise ImportError('no minigrid here')"
    assert refused_call(tmp_path, "--tiny", module="minigrid", text=text).splitlines() == [
        "error: minigrid cannot be imported (no minigrid here): make .gpu_wheels/ by launch/gpu_wheels.sh, "
        "and have it copied to this machine"
    ]


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("return 'cpu'", "jax sees no GPU here, only the cpu: "),
        ("raise RuntimeError('no\\nCUDA')", "jax cannot use the GPU: no CUDA"),
    ],
)
def test_a_machine_without_a_gpu_is_refused(tmp_path: Path, backend: str, words: str) -> None:
    text = f"def default_backend():\n    {backend}\n"
    (line,) = refused_call(tmp_path, "--plan=agents", module="jax", text=text).splitlines()
    assert line.startswith(f"error: {words}")


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'; echo 'GPU 1: other'", "GPU 0: NVIDIA H200"),
        ("exit 0", "none"),
        ("echo 'no driver'; exit 9", "none"),
        ("sleep 30", "unknown: nvidia-smi does not answer in 1 s"),
    ],
)
def test_a_driver_that_is_broken_ends_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, name: str
) -> None:
    driver = tmp_path / "nvidia-smi"
    driver.write_text(f"#!/bin/bash\n{script}\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(gpu_figures, "DRIVER_SECONDS", 1.0)
    assert gpu_figures.gpu_name() == name


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("--plan=agents", "--reward=runs/absent"),
            "--reward=runs/absent: there is no such folder",
        ),
        (("--plan=language", "--model=absent"), "--model=absent: there is no such folder"),
        (("--items=train,nethack",), "--items: nethack needs make_reward"),
        (("--items=glam",), "--items: glam needs make_model"),
    ],
)
def test_an_input_that_is_not_there_is_refused(
    flags: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        gpu_figures.chosen_plans(options_of(*flags))
    assert error.value.code == 2
    assert words in capsys.readouterr().err


def test_inputs_that_are_there_need_no_making(tmp_path: Path) -> None:
    (tmp_path / "reward").mkdir()
    options = options_of("--items=nethack", f"--work={tmp_path}")
    chosen = [item.name for plan in gpu_figures.chosen_plans(options) for item in plan.items()]
    assert chosen == ["nethack"]


def test_tiny_figures_stay_out_of_the_others_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_figures.Figures, "run_chain", lambda *_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    flags = ["--tiny", "--items=games", f"--work={tmp_path / 'work'}", f"--out={tmp_path / 'out'}"]
    monkeypatch.setattr(sys, "argv", ["gpu_figures.py", *flags])

    gpu_figures.main()

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["tiny"]
    assert (tmp_path / "out" / "tiny" / "figures.jsonl").exists()


def test_an_earlier_training_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nethack").mkdir()
    (tmp_path / "nethack" / "metrics.jsonl").write_text("{}")
    (tmp_path / "compiled").mkdir()
    folders_at_start: list[str] = []
    monkeypatch.setattr(
        gpu_figures.Figures,
        "run_chain",
        lambda *_: folders_at_start.extend(path.name for path in tmp_path.iterdir()),
    )
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    flags = ["--items=make_reward,nethack", "--started=5", "--seconds=100"]
    folders = [f"--work={tmp_path}", f"--out={tmp_path}"]
    monkeypatch.setattr(sys, "argv", ["gpu_figures.py", *flags, *folders])
    gpu_figures.main()
    assert {"nethack-before-5", "compiled"} <= set(folders_at_start)
    assert "nethack" not in folders_at_start


def test_the_next_cold_start_is_cold_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compiled").mkdir()
    monkeypatch.setattr(gpu_figures.Figures, "run_chain", lambda *_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    flags = ["--items=score_cublas_cold", f"--work={tmp_path}", f"--out={tmp_path}"]
    monkeypatch.setattr(sys, "argv", ["gpu_figures.py", *flags])
    gpu_figures.main()
    assert not (tmp_path / "compiled").exists()
