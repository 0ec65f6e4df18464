"""Runs of the offline trainer whose checkpoints are plain files."""

from __future__ import annotations

import pytest

from motif_jax.core.training import records
from tests.core.training.subtraction import FileCheckpoints


@pytest.fixture
def file_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "Checkpoints", FileCheckpoints)
