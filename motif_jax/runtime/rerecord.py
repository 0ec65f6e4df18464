"""Recordings made from seeds and actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.envs.episode import given_actions
from motif_jax.envs.replay import Recorder, Recording


def record_actions(task: str, options: Mapping[str, Any], seed: int, actions: np.ndarray) -> Recording:
    """Plays `actions` in the episode `seed` and returns its recording, with the digest of what was seen."""
    recorder = Recorder(task, **options)
    try:
        for _ in recorder.record(seed, given_actions(np.asarray(actions))):
            pass
    finally:
        recorder.close()
    assert recorder.recording is not None
    return recorder.recording
