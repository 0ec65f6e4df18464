"""Records episodes into chunk files on all cores."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from motif_jax.actors.worker_process import MAX_DEATHS, run_jobs
from motif_jax.datasets.pairs import chunks
from motif_jax.rollouts.sampling_worker import EpisodeJob, Sampler, SamplingPlan
from motif_jax.support.errors import UserError


@dataclass(frozen=True)
class Sampled:
    """One finished job: its number of sub-sequences and steps; `left_out` when it ended every process."""

    job: EpisodeJob
    count: int
    steps: int
    left_out: bool = False


def record(
    jobs: Iterator[EpisodeJob], plan: SamplingPlan, workers: int, stop: Any, answered: bool = False
) -> Generator[Sampled, None, None]:
    """Yields jobs as they are recorded, in no particular order.

    `jobs` is asked for the next one when a process has nothing to do, so that it may end as soon as enough is
    there. Processes that die are replaced and their episode is played again; the third death leaves it out.

    Args:
      jobs: the episodes to record.
      plan: how.
      workers: number of processes.
      stop: an object whose attribute `requested`, once true, ends the generator early.
      answered: whether such processes have played an episode before: then those that die do so of theirs.

    Raises:
      UserError: the processes die before the first episode is played.
    """
    deaths: Counter[int] = Counter()

    def died(job: EpisodeJob) -> bool:
        deaths[job.index] += 1
        lost = deaths[job.index] >= MAX_DEATHS
        if lost and not answered:
            raise UserError(
                "the recording processes die before they have played one episode: see their output above"
            )
        return lost

    with contextlib.closing(run_jobs(Sampler, {"plan": plan}, jobs, workers, stop, died)) as played:
        for job, answer in played:
            if answer is None:
                chunks.save(plan.folder, job.index, 0, {})
                yield Sampled(job, 0, 0, left_out=True)
            else:
                answered = True
                yield Sampled(job, *answer)
