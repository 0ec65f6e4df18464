"""Counts a training's steps and seconds, and says what is due."""

from __future__ import annotations

import time
from typing import Any

_SHOW_SECONDS = 0.5


class Clock:
    """Environment steps learned from and seconds of a run, now and when it was last saved, logged and shown."""

    def __init__(
        self, total: int, save_every_steps: int, save_every_seconds: float, log_every_seconds: float
    ) -> None:
        self.total, self._save_every_steps = total, save_every_steps
        self._save_every_seconds, self._log_every_seconds = save_every_seconds, log_every_seconds
        self.steps = self.saved_steps = self.logged_steps = 0
        self._seconds_before = 0.0
        self._started = self._saved_at = self._logged_at = self._shown_at = time.monotonic()

    def resume(self, progress: dict[str, Any]) -> None:
        self.steps, self._seconds_before = progress["env_steps"], progress["seconds"]

    def start(self) -> None:
        self._saved_at = self._logged_at = self._shown_at = time.monotonic()
        self.saved_steps = self.logged_steps = self.steps

    @property
    def finished(self) -> bool:
        return self.steps >= self.total

    def seconds(self) -> float:
        """Seconds of the run, including those before it was resumed."""
        return self._seconds_before + time.monotonic() - self._started

    def save_is_due(self) -> bool:
        return time.monotonic() - self._saved_at >= self._save_every_seconds

    def save_step_is_passed(self) -> bool:
        every = self._save_every_steps
        return self.steps // every > self.saved_steps // every

    def log_is_due(self) -> bool:
        return time.monotonic() - self._logged_at >= self._log_every_seconds

    def show_is_due(self) -> bool:
        return time.monotonic() - self._shown_at >= _SHOW_SECONDS

    def saved(self) -> None:
        self._saved_at, self.saved_steps = time.monotonic(), self.steps

    def logged(self) -> float:
        """Notes a written row; returns environment steps per second since the last one."""
        now = time.monotonic()
        rate = (self.steps - self.logged_steps) / max(now - self._logged_at, 1e-9)
        self._logged_at, self.logged_steps = now, self.steps
        return rate

    def shown(self) -> None:
        self._shown_at = time.monotonic()
