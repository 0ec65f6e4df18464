"""Worker processes of episodes: spawned, watched, and counted when they die."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from motif_jax.support.interruption import deaf_processes
from motif_jax.support.lifeline import end_with_parent

# A process that says nothing for so long hangs in the engine: it is killed and its episodes are replayed.
HANG_SECONDS = 300.0
# An episode that ends so many processes cannot be played.
MAX_DEATHS = 3


@dataclass(frozen=True)
class WorkerFailure:
    """An exception in a worker, which is a bug and not a crash of the engine; `trace` is its traceback."""

    trace: str


class EpisodeError(RuntimeError):
    """An episode kills every process that plays it."""


class WorkerProcess:
    """One spawned worker and the pipe to it."""

    def __init__(self, target: Any, setup: Mapping[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, child = context.Pipe()
        self.process = context.Process(target=_serve, args=(target, child, dict(setup)), daemon=True)
        resource_tracker.ensure_running()  # starting it would lift what holds SIGINT back
        with deaf_processes():
            self.process.start()
        child.close()  # so that a dead worker's pipe reads as closed

    def receive(self) -> Any:
        """Waits for the next answer.

        Raises:
          EOFError: the process died, or hung and was killed.
          RuntimeError: there was an exception in it.
        """
        if not self.connection.poll(HANG_SECONDS):
            self.process.kill()
        try:
            answer = self.connection.recv()
        except OSError as error:  # a reset, or the end in the middle of an answer
            raise EOFError("the process died") from error
        if isinstance(answer, WorkerFailure):
            raise RuntimeError(f"a worker process failed:\n{answer.trace}")
        return answer

    def close(self, timeout: float = 5.0) -> None:
        """Closes the pipe, on which the process ends; kills it when it has not after `timeout` seconds."""
        self.connection.close()
        self.process.join(timeout)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(target: Any, connection: Connection, setup: Mapping[str, Any]) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    end_with_parent(parent.sentinel)  # a pipe that the parent holds open and writes nothing to
    target(connection, setup)


class Deaths:
    """Counts worker deaths by episode."""

    def __init__(self, environment: str) -> None:
        self._environment, self.total = environment, 0
        self._by_seed: Counter[int] = Counter()

    def note(self, seed: int | None) -> None:
        """Counts a death in the episode `seed`, None for one that had not begun any.

        Raises:
          EpisodeError: it is the episode's third.
        """
        self.total += 1
        if seed is None:
            self._by_seed[-1] += 1
            if self._by_seed[-1] >= MAX_DEATHS:
                raise EpisodeError(
                    f"{self._environment}: workers die before they play anything; see their output"
                )
            return
        self._by_seed[seed] += 1
        if self._by_seed[seed] >= MAX_DEATHS:
            raise EpisodeError(
                f"{self._environment}: the episode with seed {seed} ended {MAX_DEATHS} worker processes"
            )
