"""Handles updates that are not finite, as `config.nonfinite` says."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import nan_policy
from motif_jax.core.errors import UserError
from motif_jax.core.sections import Nonfinite
from motif_jax.core.training.finite import named_leaves
from motif_jax.rl.learner import Failure, Learner

# Entries of a checkpoint's progress: the number of skipped updates, and the one that ended the run
# (None: none did).
SKIPPED = "skipped_updates"
ENDED_BY = "ended_by"
# Whether the numbers that were not finite in that update came from the environment.
BY_ENVIRONMENT = "ended_by_environment"
_MAX_NAMES = 3  # in a line for the user
# Names of leaves of a batch.
_REWARD = "reward"
_OBSERVATION = "observation/"


class Guard:
    """Counts a run's skipped updates, and ends it where they are too many; the host with a
    `workdir` writes.

    All hosts see the same: finiteness is reduced over all devices. A resume with a lower limit
    accepts the updates that were skipped before. A run that ended at an update resumes only with a
    limit that lets this update be skipped, too.
    """

    def __init__(
        self, nonfinite: Nonfinite, workdir: Path | None, progress: dict[str, Any]
    ) -> None:
        self._workdir = workdir
        self._budget = nonfinite.budget
        self.skipped: int = progress.get(SKIPPED, 0)
        # With a higher limit than the number of skipped updates the run goes on.
        self._ended_by: str | None = progress.get(ENDED_BY) if self.skipped > self._budget else None
        self._by_environment = bool(progress.get(BY_ENVIRONMENT, False))

    @property
    def exceeded(self) -> bool:
        """Whether more updates were skipped than the config allows."""
        return self._ended_by is not None

    def progress(self) -> dict[str, Any]:
        """Entries of a checkpoint's progress."""
        return {
            SKIPPED: self.skipped,
            ENDED_BY: self._ended_by,
            BY_ENVIRONMENT: self._by_environment,
        }

    def check(self, learner: Learner) -> None:
        """Takes the learner's failures; prints each that may be skipped."""
        failures = learner.failures
        learner.failures = []
        for failure in failures:
            self.skipped += 1
            line = self._describe(learner, failure)
            if self.skipped > self._budget:
                self._ended_by = line
            elif self._workdir is not None:
                line += f": left out ({self.skipped} of at most {self._budget})"
                print(line, file=sys.stderr, flush=True)

    def require(self, step: int) -> None:
        """Raises UserError if the run must end; its checkpoint is that of environment step
        `step`.
        """
        if self.exceeded:
            remedy = "train again with a smaller --config.optimizer.learning_rate"
            if self._by_environment:
                remedy = "mend the environment, whose rewards and observations must be finite"
            raise UserError(
                f"{self._ended_by}; checkpoint {step} has the parameters before it: {remedy}, or continue with "
                f"--config.nonfinite.policy=skip and --config.nonfinite.most_skips above {self.skipped}"
            )

    def _describe(self, learner: Learner, failure: Failure) -> str:
        """A line on the failure; the host that writes also saves its part of the batch."""
        line = f"update {failure.update} is not finite: {', '.join(failure.names[:_MAX_NAMES])}"
        if len(failure.names) > _MAX_NAMES:
            line += f" and {len(failure.names) - _MAX_NAMES} more"
        if self._workdir is None:
            return line
        arrays = named_leaves(learner.rows_of(failure))
        cause = _cause_in_environment(arrays)
        self._by_environment = cause is not None
        if cause is not None:
            line += f", since {cause}"
        return f"{line}; its batch lies in {nan_policy.write_batch(self._workdir, failure.update, arrays)}"


def _cause_in_environment(arrays: Mapping[str, np.ndarray]) -> str | None:
    """A clause on the first number of a batch that is not finite and came from the environment;
    None if there is none.

    Args:
      arrays: name -> array of a batch. Rewards are [..., T, B] and observations
          [..., T + 1, B, ...], with the same leading axes.
    """
    time_axis = np.ndim(arrays[_REWARD]) - 2
    for name, array in arrays.items():
        if name != _REWARD and not name.startswith(_OBSERVATION):
            continue
        if np.dtype(array.dtype).kind != "f" or np.isfinite(array).all():
            continue
        index = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        field = name.removeprefix(_OBSERVATION)
        return f"the environment gave {array[index]} as {field!r} (row {index[time_axis]} of a rollout)"
    return None
