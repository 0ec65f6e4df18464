from __future__ import annotations

import tempfile
from multiprocessing import util
from pathlib import Path

import pytest

from motif_jax.support import tempdirs


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files; that of this process lies elsewhere already."""
    with tempdirs.own_folders():
        util.get_temp_dir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path
