"""Films of recorded games in TensorBoard and W&B while an agent is trained."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError, first_line
from motif_jax.core.metrics import MetricsWriter
from motif_jax.envs import registry
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.play import newest_game
from motif_jax.rl import settings
from motif_jax.rl.actors import rerecording
from motif_jax.rl.actors.worker_process import WorkerProcess, close_all
from motif_jax.rl.clock import Clock
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.training_hook import TrainingHook

TAG = "recordings/newest"
_KEY = "film_every_seconds"
_LONGEST_SECONDS = 600.0  # a process that makes a film for longer is killed
CLOSE_SECONDS = 10.0  # for the film that is being made at the end of the training


class TrainingFilms(TrainingHook):
    """Shows the newest recorded game as a film (`config.film_every_seconds`).

    A process of its own makes each film and then ends, so that its memory is free between two
    films. The training looks for its answer after each update, and writes the film itself. A film
    that fails is a line on stderr.
    """

    def __init__(
        self, run: Path, every_seconds: float, clock: Clock, writer: MetricsWriter
    ) -> None:
        self._run = run
        self._every_seconds = every_seconds
        self._clock = clock
        self._writer = writer
        self.film_process: WorkerProcess | None = None
        self._ended_process: WorkerProcess | None = None  # has made the film before
        self._shown = ""  # name of the recording that was shown last
        # So that the first film is due at once.
        self._begun_at = -every_seconds
        # a resumed run has shown those of before
        self._seen_recordings = self._time_of_recordings()

    @classmethod
    def check(cls, config: AgentConfig, workdir: Path) -> None:
        seconds = config.film_every_seconds
        allowed = "0 without record_every: a film shows a recorded game"
        checks.require(config.record_every > 0, _KEY, seconds, allowed)
        name = config.environment.name
        has_screen = (
            registry.spec(name, **settings.environment_options(config)).renderer is not None
        )
        checks.require(has_screen, _KEY, seconds, f"0: {name} has no screen to make a movie of")

    @classmethod
    def make(
        cls,
        config: AgentConfig,
        network: PolicyNetwork,
        workdir: Path,
        progress: Mapping[str, Any],
        clock: Clock,
        writer: MetricsWriter,
    ) -> Self:
        return cls(workdir, config.film_every_seconds, clock, writer)

    def after_update(
        self, update: int, step: int, seconds: float, metrics: Mapping[str, float]
    ) -> None:
        elapsed = time.monotonic() - self._begun_at
        process = self.film_process
        if process is not None:
            if elapsed > _LONGEST_SECONDS:
                # Its pipe then reads as closed, which `_finish` reports.
                process.process.kill()
            if process.connection.poll():
                self._finish(process)
        elif elapsed >= self._every_seconds and self._time_of_recordings() != self._seen_recordings:
            self._begin()

    def close(self) -> None:
        process = self.film_process
        if process is not None and process.connection.poll(CLOSE_SECONDS):
            self._finish(process)
        close_all(
            [process for process in (self.film_process, self._ended_process) if process is not None]
        )
        self.film_process = None
        self._ended_process = None

    def _time_of_recordings(self) -> int | None:
        """When a file last came into the folder of recordings: that is looked up faster than its
        files.
        """
        try:
            return (self._run / rerecording.FOLDER).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def _begin(self) -> None:
        if self._ended_process is not None:
            self._ended_process.close(timeout=0)  # it had `every_seconds` for its end
            self._ended_process = None
        # Before the process looks: a game that is recorded meanwhile makes another film.
        recordings = self._time_of_recordings()
        self._begun_at = time.monotonic()
        try:
            self.film_process = WorkerProcess(newest_game.GifMaker, {"run": str(self._run)})
        except (UserError, OSError) as error:
            # Tried again with the next film that is due.
            _report(first_line(error))
            return
        self._seen_recordings = recordings
        self.film_process.send(self._shown)

    def _finish(self, process: WorkerProcess) -> None:
        """Takes the answer of the process, which ends then."""
        self.film_process = None
        self._ended_process = process
        try:
            answer = process.receive()
        except EOFError:
            _report(
                f"the process that made it died, or needed more than {_LONGEST_SECONDS / 60:.0f} minutes"
            )
            return
        except (UserError, OSError, RuntimeError) as error:
            _report(first_line(error))
            return
        # The process waits for a request: a closed pipe ends it. It is joined before the next film.
        process.connection.close()
        if isinstance(answer, newest_game.MadeGif):
            self._shown = answer.name
            self._writer.write_film(self._clock.steps, TAG, answer.gif)
        elif answer:
            _report(answer)


def _report(problem: str) -> None:
    print(f"no film of the newest recorded game: {problem}", file=sys.stderr, flush=True)
