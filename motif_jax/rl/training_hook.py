"""The interface of what a method adds to a training of agents: checks before the start, and further
files in its folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from motif_jax.core import entry_points
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl import choices
from motif_jax.rl.clock import Clock
from motif_jax.rl.config import AgentConfig


class TrainingHook:
    """An addition to a training, which a key of its config turns on (`choices.HOOKS`). The first
    host alone makes it.
    """

    # Whether `after_update` reads the episodes of all hosts, so that they exchange them after each
    # update.
    reads_updates: bool = False

    @classmethod
    def check(cls, config: AgentConfig, workdir: Path) -> None:
        """Raises UserError, before a training starts, for values that cannot work."""

    @classmethod
    def make(
        cls,
        config: AgentConfig,
        network: PolicyNetwork,
        workdir: Path,
        progress: Mapping[str, Any],
        clock: Clock,
    ) -> Self | None:
        """The addition to a run in `workdir` that continues from a checkpoint's `progress`; None
        where it has nothing to do.
        """
        return None

    def before_update(self, params: Any, update: int, step: int) -> None:
        """Called with the acting parameters before update `update` (from 0), at environment step
        `step`.
        """

    def add_episodes(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Called with the lines of episodes that ended."""

    def after_update(
        self, update: int, step: int, seconds: float, metrics: Mapping[str, float]
    ) -> None:
        """Called after update `update`, when the clock has its steps; not where the update's
        numbers were not finite.
        """

    def close(self) -> None:
        """Called once at the end."""


def hooks_of(config: AgentConfig) -> list[type[TrainingHook]]:
    """The additions that the config turns on: their keys are neither None nor False."""
    turned_on = [key for key in choices.HOOKS if getattr(config, key) not in (None, False)]
    return [entry_points.load_packaged(choices.HOOKS[key]) for key in turned_on]
