"""launch/environment.sh takes the Pythons that README and setup.cfg name."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def find_python(tmp_path: Path, version: tuple[int, int]) -> subprocess.CompletedProcess[str]:
    """Asks the script about an interpreter that says it is of `version`."""
    fake = tmp_path / "python"
    pretend = f"import sys; sys.version_info = {(*version, 0, 'final', 0)}; exec(sys.argv[1])"
    fake.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretend}" "$2"\n')
    fake.chmod(0o755)
    return subprocess.run(
        ["bash", "-c", ". launch/environment.sh; find_python"],
        cwd=REPOSITORY, env={"PATH": "/usr/bin:/bin", "MOTIF_JAX_PYTHON": str(fake)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("version", "taken"), [((3, 10), False), ((3, 11), True), ((3, 12), True), ((3, 13), False)]
)
def test_which_pythons_are_taken(tmp_path: Path, version: tuple[int, int], taken: bool) -> None:
    done = find_python(tmp_path, version)
    assert (done.returncode == 0) == taken
    if not taken:
        assert "Python 3.11 or 3.12 is needed" in done.stderr
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    named = f"Programming Language :: Python :: {version[0]}.{version[1]}" in setup["metadata"]["classifiers"]
    assert named == taken
