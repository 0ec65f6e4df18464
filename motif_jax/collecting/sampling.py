"""Records episodes into chunk files on all cores."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from motif_jax.actors.worker_process import HANG_SECONDS, MAX_DEATHS, WorkerProcess
from motif_jax.collecting import sampling_worker
from motif_jax.collecting.sampling_worker import Job, SamplingPlan
from motif_jax.datasets.pairs import chunks
from motif_jax.support.errors import UserError


@dataclass(frozen=True)
class Sampled:
    """One finished job: its number of sub-sequences and steps; `left_out` when it ended every process."""

    job: Job
    count: int
    steps: int
    left_out: bool = False


class _Worker(WorkerProcess):
    """A recording process and the job that it has."""

    def __init__(self, recording: SamplingPlan) -> None:
        super().__init__(sampling_worker.serve, {"recording": recording})
        self.job: Job | None = None
        self.since = time.monotonic()

    def give(self, job: Job) -> None:
        self.job, self.since = job, time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # found dead when its answer is read
            self.connection.send(job)

    def end(self) -> None:
        """Ends the process at once: what it was writing is written again by whoever takes the job."""
        self.process.kill()
        self.close()


class _Pool:
    def __init__(self, recording: SamplingPlan, workers: int) -> None:
        self._recording = recording
        self.workers = [_Worker(recording) for _ in range(workers)]
        self._deaths: Counter[int] = Counter()
        self._answers = 0

    def busy(self) -> dict[Connection, _Worker]:
        return {worker.connection: worker for worker in self.workers if worker.job is not None}

    def finished(self) -> Iterator[tuple[_Worker, Sampled]]:
        """Waits up to a second; yields (worker, its result) of those that have answered or died too often."""
        busy = self.busy()
        for connection in wait(list(busy), timeout=1.0):
            worker = busy[connection]  # type: ignore[index]
            job = worker.job
            assert job is not None
            try:
                count, steps = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                worker, lost = self._replace(worker)
                if not lost:
                    worker.give(job)
                    continue
                chunks.save(self._recording.folder, job.index, 0, {})
                yield worker, Sampled(job, 0, 0, left_out=True)
                continue
            worker.job = None
            self._answers += 1
            yield worker, Sampled(job, count, steps)
        for worker in busy.values():
            if worker.job is not None and time.monotonic() - worker.since > HANG_SECONDS:
                worker.process.kill()

    def _replace(self, dead: _Worker) -> tuple[_Worker, bool]:
        """Starts a process in the place of a dead one; True when its episode has had its chances."""
        assert dead.job is not None
        self._deaths[dead.job.index] += 1
        lost = self._deaths[dead.job.index] >= MAX_DEATHS
        if lost and not self._answers:
            raise UserError(
                "the recording processes die before they have played one episode: see their output above"
            )
        dead.end()
        fresh = _Worker(self._recording)
        self.workers[self.workers.index(dead)] = fresh
        return fresh, lost

    def close(self) -> None:
        for worker in self.workers:
            worker.end()


def record(jobs: Iterator[Job], recording: SamplingPlan, workers: int, stop: Any) -> Iterator[Sampled]:
    """Yields jobs as they are recorded, in no particular order.

    `jobs` is asked for the next one when a process has nothing to do, so that it may end as soon as enough is
    there. Processes that die are replaced and their episode is played again; the third death leaves it out.

    Args:
      jobs: the episodes to record.
      recording: how.
      workers: number of processes.
      stop: an object whose attribute `requested`, once true, ends the generator early.

    Raises:
      UserError: the processes die before the first episode is played.
    """
    pool = _Pool(recording, workers)
    try:
        for worker in pool.workers:
            job = next(jobs, None)
            if job is not None:
                worker.give(job)
        while pool.busy() and not stop.requested:
            for worker, done in list(pool.finished()):
                yield done
                job = next(jobs, None)
                if job is not None and not stop.requested:
                    worker.give(job)
    finally:
        pool.close()
