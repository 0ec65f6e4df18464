"""Counts a training's steps and seconds, and tells when to save, to log and to show progress."""

from __future__ import annotations

import time
from typing import Any

_SHOW_SECONDS = 0.5


class Clock:
    """Environment steps learned from and seconds of a run, now and when it was last saved, logged
    and shown.
    """

    def __init__(
        self, total: int, save_every_steps: int, save_every_seconds: float, log_every_seconds: float
    ) -> None:
        self.total = total
        self._save_every_steps = save_every_steps
        self._save_every_seconds = save_every_seconds
        self._log_every_seconds = log_every_seconds
        self.steps = 0
        self._seconds_before = 0.0  # of the run before it was resumed
        self._started_at = time.monotonic()
        self.start()

    def resume(self, progress: dict[str, Any]) -> None:
        """Continues from a checkpoint's progress."""
        self.steps = progress["env_steps"]
        self._seconds_before = progress["seconds"]

    def start(self) -> None:
        """Counts the intervals of saving, logging and showing from now on."""
        now = time.monotonic()
        self._saved_at = now
        self._logged_at = now
        self._shown_at = now
        self.saved_steps = self.steps
        self.logged_steps = self.steps

    @property
    def finished(self) -> bool:
        return self.steps >= self.total

    def seconds(self) -> float:
        """Seconds of the run, including those before it was resumed."""
        return self._seconds_before + time.monotonic() - self._started_at

    def save_is_due(self) -> bool:
        return time.monotonic() - self._saved_at >= self._save_every_seconds

    def save_step_is_passed(self) -> bool:
        # Batches seldom end at a multiple: the first one behind it saves.
        every = self._save_every_steps
        return self.steps // every > self.saved_steps // every

    def log_is_due(self) -> bool:
        return time.monotonic() - self._logged_at >= self._log_every_seconds

    def show_is_due(self) -> bool:
        return time.monotonic() - self._shown_at >= _SHOW_SECONDS

    def saved(self) -> None:
        self._saved_at = time.monotonic()
        self.saved_steps = self.steps

    def logged(self) -> float:
        """Notes a written row; returns environment steps per second since the last one."""
        now = time.monotonic()
        rate = (self.steps - self.logged_steps) / max(now - self._logged_at, 1e-9)
        self._logged_at = now
        self.logged_steps = self.steps
        return rate

    def shown(self) -> None:
        self._shown_at = time.monotonic()
