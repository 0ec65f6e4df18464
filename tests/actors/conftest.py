from __future__ import annotations

import tempfile
from multiprocessing import util
from pathlib import Path

import pytest


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files; that of the processes' server lies elsewhere already."""
    util.get_temp_dir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path
