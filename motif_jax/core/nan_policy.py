"""Writes the batch of a step that is not finite, for inspection."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.files import atomic_write_bytes

FOLDER = "nonfinite"


def path_of(workdir: str | os.PathLike[str], step: int) -> Path:
    """Where `write_batch` writes the batch of a step."""
    return Path(workdir) / FOLDER / f"step-{step}.npz"


def write_batch(workdir: str | os.PathLike[str], step: int, arrays: Mapping[str, Any]) -> Path:
    """Writes inputs and results of update `step` (from 0), which is not finite, to
    `nonfinite/step-N.npz`; returns the path.
    """
    path = path_of(workdir, step)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    atomic_write_bytes(path, buffer.getvalue())
    return path
