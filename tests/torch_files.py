"""Writes checkpoints with PyTorch, for tests that are marked `torch` (conftest.py skips these where
PyTorch is missing).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def write(path: Path, content: Any) -> Path:
    """Saves `content` by `torch.save`, with tensors in place of its numpy arrays."""
    import torch

    torch.save(_with_tensors(content, torch), path)
    return path


def _with_tensors(value: Any, torch: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, dict):
        return type(value)((key, _with_tensors(part, torch)) for key, part in value.items())
    if isinstance(value, list | tuple):
        return type(value)(_with_tensors(part, torch) for part in value)
    return value
