"""The interface of actors to inference and the batcher, which assigns slots to groups of
environments.

`pool.ActorPool` plays in processes, `inline.InlineActors` in the calling thread.
"""

from __future__ import annotations

import abc
import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from motif_jax.core.interruption import never
from motif_jax.envs import registry
from motif_jax.rl.actors.slots import SlotLayout, Slots

RESET_ROW = -1  # in a command: starts episodes instead of playing the actions of a row
HELLO_ROW = -2  # in a record: the process is up
SlotSink = Callable[[int], None]


@dataclasses.dataclass(frozen=True)
class ActorsConfig:
    """The actors' environments, and how they are divided over processes and slots.

    Attributes:
      env: name of the environment in `envs.registry`.
      options: the environment's options, for `registry.make`.
      workers: number of cores that play.
      groups_per_worker: with two, one is stepped while the other waits for its actions.
      slots_per_group: at least 2.
      rollout: steps of a slot.
      first_env: number of the first environment in the whole run.
      same_step_autoreset: no rows for final observations, see `actor.SlotGroup`.
      warmup_steps: an environment plays up to so many random steps at the start.
      warmup_seconds: a worker sleeps up to so long, a random time, at the start.
      timeout_seconds: a process that does not answer for so long is replaced.
      start_timeout_seconds: a process that is not up after so long is replaced.
      max_failures: the run ends after so many deaths of a process in a row without a finished slot
          of its group.
      start_method: 'exec' starts each process by itself; 'auto' forks them from one, which is
          faster, where that can be started.
      cores: core of each worker's processes; None: cores that no other run has claimed; empty: as
          the system chooses.
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
    # A start imports the environment's packages and makes its environments.
    start_timeout_seconds: float = 120.0
    # Death by the machine is rare, that by a fault of the environment comes again at once.
    max_failures: int = 3
    start_method: str = "auto"
    cores: Sequence[int] | None = None

    @property
    def groups(self) -> int:
        return self.workers * self.groups_per_worker

    @property
    def num_envs(self) -> int:
        return self.groups * self.envs_per_group

    def layout(self) -> SlotLayout:
        spec = registry.spec(self.env, **self.options)
        sizes = (self.groups, self.slots_per_group, self.rollout, self.envs_per_group)
        return SlotLayout.of(spec, *sizes)


class Ready(NamedTuple):
    """A group whose environments wait for the actions at (slot, row); slot and row are indices into
    `Slots`.
    """

    group: int
    slot: int
    row: int


class Rollouts(abc.ABC):
    """Groups of environments that fill slots.

    Inference's thread alone calls `start`, `ready` and `act`; any thread may call `release`,
    `episodes` and `next_episode`.

    Args:
      next_episode: the number of each environment's first episode; 0 where it is missing.

    Attributes:
      on_finished: receives a full slot, which comes back by `release`.
      restarted_groups: groups that start again with the newest `ready`; entries of these groups
          from earlier calls are void.
      dropped_slots: number of unfinished slots that were lost with their process.
      restarts: number of processes that replaced others.
    """

    def __init__(
        self,
        config: ActorsConfig,
        next_episode: Sequence[int] = (),
        on_finished: SlotSink = lambda _: None,
    ) -> None:
        if config.slots_per_group < 2:
            raise ValueError("a group needs two slots: one is filled while the other is read")
        self.config = config
        self.on_finished = on_finished
        self.slots = Slots.create(config.layout())
        self.slots.next_episode[...] = 0
        # A checkpoint of fewer environments leaves the others at 0; of more, the rest is not used.
        self.slots.next_episode.flat[: len(next_episode)] = next_episode[: config.num_envs]

        per_group = config.slots_per_group
        self._free = [
            deque(range(g * per_group, (g + 1) * per_group)) for g in range(config.groups)
        ]
        self._active: list[int | None] = [None] * config.groups
        # Group that waits for a free slot -> its last, full slot; None for a group that starts
        # again.
        self._waiting: dict[int, int | None] = {}

        self.restarted_groups: set[int] = set()
        self.dropped_slots = 0
        self.restarts = 0

    def group_of(self, slot: int) -> int:
        return slot // self.config.slots_per_group

    def first_env_of(self, slot: int) -> int:
        """The number, in the whole run, of the environment in a slot's first column."""
        return self.config.first_env + self.group_of(slot) * self.config.envs_per_group

    def next_episode(self) -> list[int]:
        """The number of the episode that each environment starts next."""
        return self.slots.next_episode.ravel().tolist()

    def release(self, slot: int) -> None:
        """Takes a finished slot back, once everything in it has been copied."""
        # In the batcher's thread: a deque takes appends while `_assign_slots` pops, without a lock.
        self._free[self.group_of(slot)].append(slot)

    @abc.abstractmethod
    def start(self, stopped: Callable[[], bool] = never) -> None:
        """Starts the actors. Raises StoppedError if `stopped` returns True before all have started;
        `close` ends the others.
        """

    @abc.abstractmethod
    def ready(self, timeout: float) -> list[Ready]:
        """Groups that wait for actions; [] if none did for `timeout` seconds. Raises RuntimeError:
        the actors cannot continue.
        """

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

    def _restart(self, group: int) -> None:
        """Lets the group wait for a slot in which it starts again; drops its unfinished slot, if
        any.
        """
        unfinished = self._active[group]
        if unfinished is not None:
            self._free[group].append(unfinished)
            self._active[group] = None
            self.dropped_slots += 1
        self._waiting[group] = None
        self.restarted_groups.add(group)

    def _note_written(self, group: int, slot: int, row: int) -> Ready | None:
        """Notes that `row` has been written; returns the group as ready, or None if its slot is
        full.
        """
        if row < self.config.rollout:
            return Ready(group, slot, row)
        self._active[group] = None
        self._waiting[group] = slot
        self.on_finished(slot)
        return None

    def _assign_slots(self) -> list[Ready]:
        """Gives free slots to the groups that wait for one; returns those that are ready for an
        action.
        """
        ready = []
        for group in list(self._waiting):
            if not self._free[group]:
                continue
            full = self._waiting.pop(group)
            slot = self._free[group].popleft()
            self._active[group] = slot
            if full is None:
                # The process answers with row 0, which makes the group ready.
                self._command(group, slot, RESET_ROW)
            else:
                # Row T of the full slot has no action yet. It is there also after a release, for
                # no other group writes into the slot.
                self.slots.carry(full, slot)
                ready.append(Ready(group, slot, 0))
        return ready
