"""Records every Nth game of a training: collects its actions from the batches and replays them in
another process.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.devices.services import ServiceFailedError
from motif_jax.core.errors import UserError, first_line
from motif_jax.core.files import finite
from motif_jax.envs.episode import PlayedEpisode
from motif_jax.envs.recording import FOLDER, STEM, Recording, digest_fields
from motif_jax.rl.actors.episodes import EpisodeJob, EpisodeServer
from motif_jax.rl.actors.processes import MAX_DEATHS
from motif_jax.rl.actors.worker_process import WorkerProcess
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch

# games that wait to be replayed (2 bytes a step, or 4 for each real number); later ones are not
# recorded
MAX_WAITING = 256
CLOSE_SECONDS = 10.0  # for the games that wait at the end of the training


class EpisodeActions(NamedTuple):
    """The collected actions of an ended episode."""

    env: int
    episode: int
    actions: np.ndarray


class ActionCollector:
    """Collects the actions of every Nth episode of each environment (at different offsets), from
    batch to batch.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        # Environment -> its running episode, and the actions so far.
        self._playing: dict[int, tuple[int, list[np.ndarray]]] = {}

    def add(
        self, batch: TrajectoryBatch, envs: np.ndarray, episode: np.ndarray
    ) -> list[EpisodeActions]:
        """Adds a batch; returns the chosen episodes that ended in it.

        Args:
          batch: numpy arrays [T, B]; actions of rows marked `last` were not played.
          envs: int [B], the environments of the columns; a column continues where the environment's
              last column ended.
          episode: int [T, B].
        """
        is_chosen = ((episode + envs) % self._every == 0) & ~batch.last[: len(episode)]
        ended = batch.terminated | batch.truncated
        finished = []
        for column in np.flatnonzero(is_chosen.any(axis=0)).tolist():
            env = int(envs[column])
            chosen_rows = np.flatnonzero(is_chosen[:, column])
            episode_of_row = episode[chosen_rows, column]
            for number in np.unique(episode_of_row).tolist():
                rows = chosen_rows[episode_of_row == number]
                running, pieces = self._playing.pop(env, (number, []))
                if running != number:
                    pieces = []  # an actor died in the middle of that episode
                pieces.append(_compact(batch.action[rows, column]))
                if ended[rows[-1], column]:
                    finished.append(EpisodeActions(env, number, np.concatenate(pieces)))
                else:
                    self._playing[env] = (number, pieces)
        return finished


def _compact(actions: np.ndarray) -> np.ndarray:
    """The actions in half the memory where they are numbered: episodes may be long, and many
    wait.
    """
    return actions.astype(np.int16) if np.issubdtype(actions.dtype, np.integer) else actions


class EpisodeRecorder:
    """Records a training's games; a process of its own replays them.

    Some games are not recorded: those with missing actions (begun before the training, or lost with
    an actor), and those that end faster than others are replayed.

    Attributes:
      waiting: the recordings that are not written yet, oldest first.
    """

    def __init__(
        self, workdir: Path, environment: str, options: Mapping[str, Any], every: int
    ) -> None:
        self._folder = workdir / FOLDER
        self._task = environment
        self._options = dict(options)
        self._setup = {
            "environment": environment,
            "options": self._options,
            "keep_texts": False,
            "digest_fields": digest_fields(environment, options),
        }
        self._every = every
        self._collector = ActionCollector(every)
        self._lock = threading.Lock()
        # (environment, episode) -> actions or report of episodes that lack the other.
        self._played: dict[tuple[int, int], np.ndarray] = {}
        self._reports: dict[tuple[int, int], dict[str, Any]] = {}
        self._process: WorkerProcess | None = None
        self._deaths = 0  # of the process in a row
        self._left_out = 0  # games that came too fast
        self._pool = ThreadPoolExecutor(1, "recordings")
        self.waiting: deque[Future[None]] = deque()

    def __enter__(self) -> EpisodeRecorder:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # `_record` takes no lock, so that it goes on during this wait.
        with self._lock:
            wait(self.waiting, CLOSE_SECONDS)
            self._left_out += sum(future.cancel() for future in self.waiting)
        self._pool.shutdown()
        if self._process is not None:
            self._process.close()
        if self._left_out:
            line = (
                f"{self._left_out} episodes were not recorded: they came faster than they could be replayed; "
                f"a larger record_every than {self._every} leaves none out"
            )
            print(line, file=sys.stderr, flush=True)
        if error is None:
            self._raise_errors()  # recording may have failed since the last report

    def take(self, batch: TrajectoryBatch, envs: np.ndarray, episode: np.ndarray) -> None:
        """A `BatchListener`: takes the actions of a batch; see `ActionCollector.add`."""
        for played in self._collector.add(batch, envs, episode):
            with self._lock:
                self._played[played.env, played.episode] = played.actions
                self._match(played.env, played.episode)

    def report(self, step: int, reports: Iterable[Mapping[str, Any]]) -> None:
        """Takes the actors' reports of complete episodes at environment step `step`.

        Raises:
          UserError: the process that replays raised it.
          ServiceFailedError: recording failed otherwise.
        """
        self._raise_errors()
        for row in reports:
            env = int(row["env"])
            episode = int(row["episode"])
            if (env + episode) % self._every == 0:
                with self._lock:
                    self._reports[env, episode] = {"step": step, **row}
                    self._match(env, episode)

    def _raise_errors(self) -> None:
        """Raises the error of a replay, if one has failed since the last call."""
        with self._lock:
            while self.waiting and self.waiting[0].done():
                future = self.waiting.popleft()
                error = None if future.cancelled() else future.exception()
                if isinstance(error, UserError):
                    raise error
                if error is not None:
                    raise ServiceFailedError(
                        f"the recordings thread failed: {first_line(error)}"
                    ) from error

    def _match(self, env: int, episode: int) -> None:
        """Orders the replay of an episode once its actions and its report are there; the caller
        holds the lock.
        """
        key = (env, episode)
        if key not in self._played or key not in self._reports:
            return
        actions = self._played.pop(key)
        report = self._reports.pop(key)

        # Entries of the environment's earlier episodes stay incomplete: games begun before the
        # training are not reported.
        incomplete: dict[tuple[int, int], Any]
        for incomplete in (self._played, self._reports):
            for other in list(incomplete):
                if other[0] == env and other[1] < episode:
                    del incomplete[other]

        if len(actions) != report["length"]:
            return  # some were lost with an actor
        if len(self.waiting) >= MAX_WAITING:
            self._left_out += 1
            return
        name = f"step-{report['step']:012d}-env-{env:05d}-episode-{episode:06d}.json"
        job = EpisodeJob(episode, int(report["seed"]), actions=actions)
        self.waiting.append(self._pool.submit(self._record, self._folder / name, job, report))

    def _record(self, path: Path, job: EpisodeJob, report: Mapping[str, Any]) -> None:
        """Plays a game again and writes its recording, if it has the numbers of the report."""
        if self._process is None:
            self._process = WorkerProcess(EpisodeServer, self._setup)
        problem = ""
        try:
            self._process.connection.send(job)
            episode: PlayedEpisode = self._process.receive()
            self._deaths = 0
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.close()
            self._process = None
            self._deaths += 1
            if self._deaths == MAX_DEATHS:
                message = f"the process that records episodes died {MAX_DEATHS} times in a row"
                raise RuntimeError(message) from None
            problem = "the process that played it again died"
        else:
            played = finite(report)
            info = finite(episode.info)
            differing = [name for name, value in info.items() if value != played[name]]
            if differing:
                problem = (
                    f"seed {job.seed} does not play the same way twice ({', '.join(differing)})"
                )
            else:
                Recording.of(self._task, self._options, episode).save(path)
        if problem:
            print(f"{path.name} is not recorded: {problem}", file=sys.stderr, flush=True)


def drop_recordings(workdir: Path, resume_step: int | None) -> None:
    """Removes recordings of games that a resumed run plays again: those after `resume_step`; all
    where it is None.
    """
    last_step = -1 if resume_step is None else resume_step
    for path in (workdir / FOLDER).glob("step-*.json"):
        match = STEM.fullmatch(path.stem)
        if match and int(match.group(1)) > last_step:
            path.unlink()
