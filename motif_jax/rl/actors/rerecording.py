"""Makes recordings of episodes by playing them again from seeds and actions."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.files import finite
from motif_jax.envs import registry
from motif_jax.envs.recording import Recording, record
from motif_jax.rl.actors.worker_process import note_progress

FOLDER = "recordings"  # in a training's folder
# The recordings' names in it, without '.json': step of the training, environment, episode.
STEM = re.compile(r"step-(\d+)-env-(\d+)-episode-(\d+)")


class Order(NamedTuple):
    """A recording to make."""

    seed: int
    actions: np.ndarray
    # numbers of the episode when it was played; the replay must have the same
    info: Mapping[str, Any]
    path: str


def record_actions(
    task: str, options: Mapping[str, Any], seed: int, actions: np.ndarray
) -> Recording:
    """Plays `actions` in the episode `seed` and returns its recording, with the digest of the
    observations.
    """
    with contextlib.closing(registry.make(task, **options)) as environment:
        return record(environment, task, options, seed, np.asarray(actions))


def differences(info: Mapping[str, Any], written: Mapping[str, Any]) -> list[str]:
    """Describes the numbers of a replay that differ from the written ones: 'dlvl 3 written, 2
    now'.
    """
    lines = []
    for name, value in info.items():
        before = written.get(name)
        if before is not None and finite(before) != finite(value):
            lines.append(f"{name} {before:g} written, {value:g} now")
    return lines


class Rerecorder:
    """The work of a process that writes a recording for each `Order`; it answers None, or a line on
    how the replay differs.
    """

    def __init__(self, setup: Mapping[str, Any]) -> None:
        # A batch system's signals reach the whole process group: the parent decides what they mean.
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        self._task: str = setup["environment"]
        self._options: Mapping[str, Any] = setup["options"]
        self._environment = registry.make(self._task, **self._options)

    def answer(self, request: Order) -> str | None:
        recording = record(
            self._environment,
            self._task,
            self._options,
            request.seed,
            request.actions,
            note_progress,
        )
        info = finite(recording.info)
        info_as_played = finite(request.info)
        differing = [name for name, value in info.items() if value != info_as_played[name]]
        if differing:
            return f"seed {request.seed} does not play the same way twice ({', '.join(differing)})"
        recording.save(request.path)
        return None

    def close(self) -> None:
        self._environment.close()
