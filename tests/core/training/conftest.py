"""Runs of the offline trainer whose checkpoints are plain files."""

from __future__ import annotations

import pytest

from motif_jax.core.training import run_files
from tests.core.training.subtraction import FileCheckpoints


@pytest.fixture
def file_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "Checkpoints", FileCheckpoints)
