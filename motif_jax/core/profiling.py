"""XLA profiling: a trace of chosen steps for xprof and TensorBoard, and the live profiler
server.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import jax

from motif_jax.core.errors import UserError


class Profiler:
    """Records steps [start, start + steps), counted from the start of this process, into
    workdir/profile; None records nothing.

    With `server_port` the profiler server listens there for the whole run. Raises UserError: the
    port cannot be used.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        start: int | None = None,
        steps: int = 5,
        server_port: int | None = None,
    ) -> None:
        self._folder = Path(workdir) / "profile"
        self._start = start
        self._steps = steps
        self._first: int | None = None
        self._updates = 0
        self._recording = False
        if server_port is not None:
            _require_free(server_port)
            jax.profiler.start_server(server_port)

    def step(self, number: int) -> None:
        """Call before step `number`; starts or stops the trace when its time has come."""
        if self._start is None:
            return
        # A resumed run begins at a high number, and compiles in its first steps like any other.
        self._first = number if self._first is None else self._first
        done = number - self._first
        self._updates = done + 1
        if done == self._start and not self._recording:
            self._folder.mkdir(parents=True, exist_ok=True)
            jax.profiler.start_trace(str(self._folder))
            self._recording = True
        # A step of the caller may be several, so the end is not met exactly.
        elif self._recording and done >= self._start + self._steps:
            self.close()

    def close(self) -> None:
        """Ends the trace; says so where the training ended before its start."""
        if not self._recording and self._start is not None and self._updates:
            print(
                f"warning: config.profile.start={self._start}: no trace was taken, since the run ended after {self._updates:,} updates "
                "(of trainings with config.chunk_steps: programs of so many steps); give a smaller start",
                file=sys.stderr,
                flush=True,
            )
            self._start = None
        if self._recording:
            jax.profiler.stop_trace()
            print(f"profile: {self._folder.resolve()} (tensorboard --logdir, or xprof)", flush=True)
            self._recording = False
            self._start = None


def _require_free(port: int) -> None:
    """Raises UserError where somebody listens at `port`: jax would be silent about it."""
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise UserError(
            f"config.profile.server_port={port}: cannot be used here ({error.strerror}): choose another"
        ) from None
