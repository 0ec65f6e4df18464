"""Assigns slots to groups of environments: the actors' interface to inference and the batcher (`pool`, `inline`)."""

from __future__ import annotations

import abc
import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from motif_jax.core.interruption import never
from motif_jax.envs import registry
from motif_jax.rl.actors.slots import SlotLayout, Slots

# The row in a command that starts episodes instead of playing actions, and in the record of a process that is up.
RESET_ROW = -1
HELLO_ROW = -2
SlotSink = Callable[[int], None]


@dataclasses.dataclass(frozen=True)
class ActorsConfig:
    """The actors' environments and their division.

    Attributes:
      env, options: of `registry.make`.
      workers: number of cores that play.
      groups_per_worker: with two, one is stepped while the other waits for its actions.
      slots_per_group: at least 2.
      rollout: steps of a slot.
      first_env: number of the first environment in the whole run.
      same_step_autoreset: no rows for final observations, see `group.SlotGroup`.
      warmup_steps: most random steps that an environment plays at the start.
      warmup_seconds: the longest random time that a worker sleeps at the start.
      timeout_seconds, start_timeout_seconds: a process that does not answer, or is not up, for so long is replaced.
      max_failures: deaths of a process in a row, without a finished slot of its group, that end the run.
      start_method: 'exec' starts each process by itself, 'fork' and 'auto' fork them from one, which is faster.
      remembered: most actions of an episode, all of which are remembered: after the death of a process, or a resume, environments
        are rebuilt from seeds and actions. 0: they begin new episodes.
      cores: of each worker's processes; None: cores that no other run has claimed; empty: as the system chooses.
    """

    env: str
    options: Mapping[str, Any]
    seed: int
    workers: int
    envs_per_group: int
    rollout: int
    groups_per_worker: int = 2
    slots_per_group: int = 3
    first_env: int = 0
    same_step_autoreset: bool = False
    warmup_steps: int = 0
    warmup_seconds: float = 0.0
    timeout_seconds: float = 300.0
    start_timeout_seconds: float = 120.0
    max_failures: int = 3
    start_method: str = "auto"
    cores: Sequence[int] | None = None
    remembered: int = 0

    @property
    def groups(self) -> int:
        return self.workers * self.groups_per_worker

    @property
    def num_envs(self) -> int:
        return self.groups * self.envs_per_group

    def layout(self) -> SlotLayout:
        spec = registry.spec(self.env, **self.options)
        sizes = (self.groups, self.slots_per_group, self.rollout, self.envs_per_group)
        return SlotLayout.of(spec, *sizes, self.remembered)


class Ready(NamedTuple):
    """A group whose environments wait for the actions at (slot, row); slot and row are indices into `Slots`."""

    group: int
    slot: int
    row: int


class Rollouts(abc.ABC):
    """Groups that fill slots.

    `ready`, `act` and `start` belong to one thread (inference); `release`, `episodes` and `next_episode` may be called
    from others.

    Args:
      next_episode: the number of each environment's first episode; 0 where it is missing.

    Attributes:
      on_finished: receives a full slot, which comes back by `release`.
      keeps_places: after `restore` groups continue in the middle of their slots; else each begins one.
      begun_anew: groups that start again with the newest `ready`: entries of these groups from earlier calls are void.
    """

    keeps_places = False

    def __init__(
        self, config: ActorsConfig, next_episode: Sequence[int] = (), on_finished: SlotSink = lambda _: None
    ) -> None:
        if config.slots_per_group < 2:
            raise ValueError("a group needs two slots: one is filled while the other is read")
        self.config, self.on_finished = config, on_finished
        self.slots = Slots.create(config.layout())
        per_group = config.slots_per_group
        self._free = [deque(range(g * per_group, (g + 1) * per_group)) for g in range(config.groups)]
        self._active: list[int | None] = [None] * config.groups
        # Group that waits for a free slot -> its last, full slot; None for a group that starts again.
        self._waiting: dict[int, int | None] = {}
        self.slots.next_episode[...] = 0
        self.slots.next_episode.flat[: len(next_episode)] = next_episode[: config.num_envs]
        self.begun_anew: set[int] = set()
        self.dropped_slots = self.restarts = self.rebuilt = 0
        self._resumes = False  # whether `restore` was called: remembered episodes continue

    def state(self) -> dict[str, Any]:
        """The groups' state, JSON-able, while none plays; `slots.dump` has the rest."""
        return {
            "layout": str(self.config.layout()),
            "free": [list(slots) for slots in self._free],
            "active": self._active,
            "waiting": list(self._waiting.items()),
        }

    def restore(self, state: Mapping[str, Any], block: np.ndarray) -> None:
        """Restores, before `start`, the output of `state` and `slots.dump` for the same layout."""
        self.slots.load(block)
        self._resumes = True

    def group_of(self, slot: int) -> int:
        return slot // self.config.slots_per_group

    def first_env_of(self, slot: int) -> int:
        """The number, in the whole run, of the environment in a slot's first column."""
        return self.config.first_env + self.group_of(slot) * self.config.envs_per_group

    def next_episode(self) -> list[int]:
        """The number of the episode that each environment starts next."""
        return self.slots.next_episode.ravel().tolist()

    def release(self, slot: int) -> None:
        """Gives a finished slot back when everything in it has been copied."""
        self._free[self.group_of(slot)].append(slot)

    @abc.abstractmethod
    def start(self, stopped: Callable[[], bool] = never) -> None:
        """Starts the actors. Raises StoppedError: `stopped` was True before all were started; `close` ends those that were."""

    @abc.abstractmethod
    def ready(self, timeout: float) -> list[Ready]:
        """Groups that wait for actions, [] if none did for `timeout` seconds. Raises RuntimeError: the actors cannot continue."""

    @abc.abstractmethod
    def act(self, ready: Sequence[Ready]) -> None:
        """Steps the groups with the actions at these rows."""

    @abc.abstractmethod
    def episodes(self) -> list[dict[str, Any]]:
        """The numbers of the episodes that ended since the last call."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the actors. May be called twice."""

    @abc.abstractmethod
    def _command(self, group: int, slot: int, row: int) -> None:
        """Makes the group write row `row` + 1 of `slot`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _wants_start(self, group: int) -> None:
        """Starts the group again; drops its unfinished slot, if any."""
        unfinished = self._active[group]
        if unfinished is not None:
            self._free[group].append(unfinished)
            self._active[group] = None
            self.dropped_slots += 1
        self._waiting[group] = None
        self.begun_anew.add(group)

    def _written(self, group: int, slot: int, row: int) -> Ready | None:
        """Takes note that `row` has been written: the group is ready, or its slot is full."""
        if row < self.config.rollout:
            return Ready(group, slot, row)
        self._active[group] = None
        self._waiting[group] = slot
        self.on_finished(slot)
        return None

    def _go_on(self) -> list[Ready]:
        """Gives free slots to the groups that wait for one."""
        ready = []
        for group in list(self._waiting):
            if not self._free[group]:
                continue
            full = self._waiting.pop(group)
            slot = self._free[group].popleft()
            self._active[group] = slot
            if full is None:
                self._command(group, slot, RESET_ROW)
            else:
                self.slots.carry(full, slot)
                ready.append(Ready(group, slot, 0))
        return ready
