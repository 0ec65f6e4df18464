"""Runs of version 0.1.0, as they were left."""

from __future__ import annotations

import tarfile
from pathlib import Path

_ARCHIVE = Path(__file__).parent / "fixtures" / "v0.1.0" / "runs.tar.xz"


def unpack(folder: Path) -> Path:
    """A copy of the runs in `folder`."""
    with tarfile.open(_ARCHIVE) as archive:
        # Pythons before 3.11.4 know no filter.
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder, **safely)  # type: ignore[arg-type]
    return folder
