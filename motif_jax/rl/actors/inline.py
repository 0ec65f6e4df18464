"""Actors without processes: they play in the calling thread, in a fixed order (serial mode)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from motif_jax.core.interruption import StoppedError, never
from motif_jax.rl.actors.actor import SlotGroup
from motif_jax.rl.actors.rollouts import RESET_ROW, ActorsConfig, Ready, Rollouts, SlotSink


class InlineActors(Rollouts):
    """Plays all groups of `config` in this thread, each command at once."""

    def __init__(
        self,
        config: ActorsConfig,
        next_episode: Sequence[int] = (),
        on_finished: SlotSink = lambda _: None,
    ) -> None:
        super().__init__(config, next_episode, on_finished)
        self._groups: list[SlotGroup] = []
        self._records: list[tuple[int, int, int]] = []
        self._episodes: list[dict[str, Any]] = []

    def start(self, stopped: Callable[[], bool] = never) -> None:
        for group in range(self.config.groups):
            if stopped():
                raise StoppedError
            self._groups.append(SlotGroup(self.config, self.slots, group, self._episodes.append))
            self._restart(group)

    def ready(self, timeout: float) -> list[Ready]:
        self.restarted_groups.clear()
        ready = self._assign_slots()
        records = self._records
        self._records = []
        for group, slot, row in records:
            waiting = self._note_written(group, slot, row)
            if waiting is not None:
                ready.append(waiting)
        return ready + self._assign_slots()

    def act(self, ready: Sequence[Ready]) -> None:
        for group, slot, row in ready:
            self._command(group, slot, row)

    def episodes(self) -> list[dict[str, Any]]:
        # Not replaced: the groups append to this very list.
        finished = self._episodes.copy()
        self._episodes.clear()
        return finished

    def close(self) -> None:
        for group in self._groups:
            group.close()
        self._groups.clear()
        self.slots.close()

    def _command(self, group: int, slot: int, row: int) -> None:
        if row == RESET_ROW:
            self._groups[group].reset(slot, self.config.warmup_steps)
        else:
            self._groups[group].step(slot, row)
        # For the next `ready`, as the record of a process.
        self._records.append((group, slot, row + 1))
