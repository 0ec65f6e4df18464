"""Safetensors files with the rights of any new file."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
from safetensors.numpy import save_file

from motif_jax.core.files import share


def save(
    tensors: Mapping[str, np.ndarray],
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes contiguous `tensors` by name; the library (0.8) writes files that only their owner can
    read.
    """
    save_file(dict(tensors), path, None if metadata is None else dict(metadata))
    share(path)
