"""Reads results of GLAM's published tool: curves of `log.csv`, and returns of tests in
`return_per_episode/*.npy`.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from motif_jax.core import metric_files
from motif_jax.core.errors import UserError
from motif_jax.core.files import load_array
from motif_jax.core.metric_files import Curve

LOG = "log.csv"
# Measure -> its column in the log.
_COLUMNS = {"return": "return_mean", "success": "success_rate", "length": "num_frames_mean"}


def is_log(folder: str | os.PathLike[str]) -> bool:
    """Whether the folder has a log of the published tool and is not a run of this package."""
    return (Path(folder) / LOG).is_file() and not (Path(folder) / "config.json").exists()


def read_curves(folder: str | os.PathLike[str]) -> dict[str, Curve]:
    """The measures of a log over environment steps. Raises UserError: the log is damaged or empty,
    or lacks their columns.
    """
    path = Path(folder) / LOG
    table = metric_files.read_csv(path)
    shown = {measure: column for measure, column in _COLUMNS.items() if column in table}
    if "frames" not in table or not shown:
        raise UserError(
            f"{path} has no row with frames and one of {', '.join(_COLUMNS.values())}: it is not a log of the published tool"
        )
    order = np.argsort(table["frames"], kind="stable")
    steps = table["frames"][order]
    return {measure: Curve(steps, table[column][order]) for measure, column in shown.items()}


def read_returns(path: str | os.PathLike[str]) -> np.ndarray:
    """The returns of a test's episodes, float64 [episodes]. Raises UserError: the file has no array
    of finite numbers.
    """
    try:
        returns = load_array(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a numeric .npy file: {error}") from None
    if returns.dtype.kind not in "fiu" or not returns.size or not np.isfinite(returns).all():
        raise UserError(f"{path} is not a .npy file of finite numbers")
    return returns.astype(np.float64).ravel()
