"""Recordings made from seeds and actions."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from motif_jax.actors.worker_process import WorkerFailure
from motif_jax.envs.episode import given_actions
from motif_jax.envs.replay import Recorder, Recording


class Order(NamedTuple):
    """A recording to make.

    Attributes:
      seed, actions: of the episode.
      info: numbers of the episode when it was played; those that the replay has must be the same.
      path: of the recording.
    """

    seed: int
    actions: np.ndarray
    info: Mapping[str, Any]
    path: str


def record_actions(task: str, options: Mapping[str, Any], seed: int, actions: np.ndarray) -> Recording:
    """Plays `actions` in the episode `seed` and returns its recording, with the digest of what was seen."""
    recorder = Recorder(task, **options)
    try:
        return _record(recorder, seed, actions)
    finally:
        recorder.close()


def _record(recorder: Recorder, seed: int, actions: np.ndarray) -> Recording:
    for _ in recorder.record(seed, given_actions(np.asarray(actions))):
        pass
    assert recorder.recording is not None
    return recorder.recording


def differences(info: Mapping[str, Any], written: Mapping[str, Any]) -> list[str]:
    """Names the numbers that a replay has otherwise than was written: 'dlvl 3 written, 2 now'."""
    return [
        f"{name} {written[name]:g} written, {value:g} now"
        for name, value in info.items()
        if written.get(name) is not None and written[name] != value
    ]


def serve_recordings(connection: Connection, setup: Mapping[str, Any]) -> None:
    """Writes a recording for each `Order` received, until the parent closes the pipe or dies.

    Answers None, or why an episode could not be recorded: its replay had other numbers.
    """
    # A batch system's signals reach the whole process group: the parent decides what they mean.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    recorder = None
    try:
        recorder = Recorder(setup["environment"], **setup["options"])
        while True:
            order = connection.recv()
            recording = _record(recorder, order.seed, order.actions)
            differing = [name for name, value in recording.info.items() if value != order.info[name]]
            if not differing:
                recording.save(order.path)
            connection.send(
                f"seed {order.seed} does not play the same way twice ({', '.join(differing)})"
                if differing
                else None
            )
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except Exception:
        connection.send(WorkerFailure(traceback.format_exc()))
    finally:
        if recorder is not None:
            recorder.close()
