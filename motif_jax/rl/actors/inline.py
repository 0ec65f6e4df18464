"""Actors without processes: they play in the calling thread, in a fixed order (serial mode)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.interruption import StoppedError, never
from motif_jax.rl.actors.group import SlotGroup
from motif_jax.rl.actors.rollouts import RESET_ROW, ActorsConfig, Ready, Rollouts, SlotSink


class InlineActors(Rollouts):
    """Plays all groups of `config` in this thread, each command at once."""

    resumes_in_slot = True

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
            if not self._resumes:
                self._restart(group)
                continue
            # A group that waits without a full slot had not begun a game.
            had_begun = group not in self._waiting or self._waiting[group] is not None
            if had_begun:
                self._groups[group].rebuild()
                self.rebuilt += self.config.envs_per_group

    def state(self) -> dict[str, Any]:
        """See `Rollouts.state`; includes the records that no `ready` has returned."""
        return {**super().state(), "records": self._records}

    def restore(self, state: Mapping[str, Any], block: np.ndarray) -> None:
        """See `Rollouts.restore`: every group continues in the middle of its slot.

        Raises UserError: the state is that of processes, which do not stop in the middle of a slot.
        """
        if "records" not in state:
            raise UserError(
                "config.serial=True: must be False as when the run started (or choose another --workdir): its games ran in processes"
            )
        super().restore(state, block)
        # Unlike processes, groups go on within their slots.
        self._free = [deque(slots) for slots in state["free"]]
        self._active = list(state["active"])
        self._waiting = dict(state["waiting"])
        self._records = [(group, slot, row) for group, slot, row in state["records"]]

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
