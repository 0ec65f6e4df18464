"""Runs of agents whose reward was learned while they played, as folders of a reward.

What reads them lies with the method that writes them, and is imported where such a folder or file
is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motif_jax.core import entry_points

_READER = "motif_jax.oni.online_model:OnlineRuns"
# A run with this file has labels of its messages.
LABELS = "labels.jsonl"


def reader() -> Any:
    """The class that reads such runs (`oni/online_model.py:OnlineRuns`)."""
    return entry_points.load_packaged("reward.dir", _READER)


def reader_of(config: Mapping[str, Any]) -> Any | None:
    """`reader()` for the config of a training of an agent that learned its reward, None for another
    run's.
    """
    if config.get("stage") != "train_agent":
        return None
    return reader() if reader().wrote(config) else None
