"""Handles updates that are not finite, as `config.nonfinite` says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax

from motif_jax.core import nan_policy
from motif_jax.core.errors import UserError
from motif_jax.core.sections import Nonfinite
from motif_jax.core.training.finite import named_leaves
from motif_jax.rl.learner import Failure, Learner

# Entries of a checkpoint's progress: the number of skipped updates, and the one that ended the run (None: none did).
SKIPPED = "skipped_updates"
ENDED_BY = "ended_by"
_MOST_NAMES = 3


class Guard:
    """Counts a run's skipped updates, and ends it where they are too many; the host with a `workdir` writes.

    All hosts see the same: finiteness is reduced over all devices. A resume with a lower limit accepts the updates that were
    skipped before. A run that ended at an update resumes only with a limit that lets this update be skipped, too.
    """

    def __init__(self, nonfinite: Nonfinite, workdir: Path | None, progress: dict[str, Any]) -> None:
        self._workdir, self._most = workdir, nonfinite.budget
        self.skipped: int = progress.get(SKIPPED, 0)
        self._ended_by: str | None = progress.get(ENDED_BY) if self.skipped > self._most else None

    @property
    def exceeded(self) -> bool:
        return self._ended_by is not None

    def progress(self) -> dict[str, Any]:
        return {SKIPPED: self.skipped, ENDED_BY: self._ended_by}

    def check(self, learner: Learner) -> None:
        failures, learner.failures = learner.failures, []
        for failure in failures:
            self.skipped += 1
            line = self._describe(failure)
            if self.skipped > self._most:
                self._ended_by = line
            elif self._workdir is not None:
                line += f": left out ({self.skipped} of at most {self._most})"
                print(line, file=sys.stderr, flush=True)

    def require(self, step: int) -> None:
        """Raises UserError if the run must end; its checkpoint is that of environment step `step`."""
        if self.exceeded:
            raise UserError(
                f"{self._ended_by}; checkpoint {step} has the parameters before it: train again with a smaller "
                "--config.optimizer.learning_rate, or continue with --config.nonfinite.policy=skip and --config.nonfinite."
                f"most_skips above {self.skipped}"
            )

    def _describe(self, failure: Failure) -> str:
        shown = ", ".join(failure.what[:_MOST_NAMES])
        more = f" and {len(failure.what) - _MOST_NAMES} more" if len(failure.what) > _MOST_NAMES else ""
        line = f"update {failure.update} is not finite: {shown}{more}"
        if self._workdir is None:
            return line
        arrays = named_leaves(jax.device_get(failure.batch.trajectories))
        return f"{line}; its batch lies in {nan_policy.write_batch(self._workdir, failure.update, arrays)}"
