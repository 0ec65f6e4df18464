"""An actor process, and the group of environments that it plays.

It reads commands from a pipe until the pipe ends. For each command it writes a row of a slot and
sends back a record of it. After a reset, `RESET_ROW` in a command, it begins an episode in each of
its environments, lets them play random steps where the run has just begun, and writes row 0.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, cast

import numpy as np

from motif_jax.core import seeds, tempdirs
from motif_jax.core.interruption import never, outlive_readers
from motif_jax.envs import registry, spec
from motif_jax.envs.spec import TERMINATED, TRUNCATED, Action
from motif_jax.rl.actors.processes import (
    ParentGoneError,
    end_with_parent,
    failure_of,
    parent_is_gone,
    parent_reads,
)
from motif_jax.rl.actors.rollouts import RESET_ROW, ActorsConfig
from motif_jax.rl.actors.slots import SlotLayout, Slots

# Of fixed size, so that readers need no framing: a pipe never splits writes of less than 4,096
# bytes.
COMMAND = struct.Struct("<3i")  # generation, slot, row whose actions lie ready
RECORD = struct.Struct("<4i")  # generation, group, slot, row that has been written
# The report of a process that has made its environments; others are the numbers of an episode, or
# a `Failure`.
UP = "up"


class Descriptor:
    """Wraps a file descriptor in an argument of a new process, which receives a duplicate."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _received, (reduction.DupFd(self.number),)


def _received(duplicate: Any) -> Descriptor:
    return Descriptor(duplicate.detach())


@dataclass(frozen=True)
class ActorOrders:
    """What an actor process is to play.

    Attributes:
      generation: how many processes have played the group before.
      variables: environment variables. A forkserver would pass on those of the time at which it
          started.
      temporary: folder of temporary files.
      memory: the block of the slots.
      commands: the process's pipe of commands.
      records: the pipe of records, which all processes share.
    """

    config: ActorsConfig
    layout: SlotLayout
    group: int
    generation: int
    variables: Mapping[str, str]
    temporary: str
    memory: Descriptor
    commands: Descriptor
    records: Descriptor


def serve(reports: Connection, orders: ActorOrders) -> None:
    """Plays until the pipe of commands ends. `reports` takes everything but records: the pool
    raises an error if restarts do not help.
    """
    lifeline = end_with_parent()
    # Keeps the collector from writing to the imported objects' memory, which forked processes
    # share.
    gc.freeze()
    # Engines' prints go to the log: standard output belongs to the pool.
    os.dup2(2, 1)
    outlive_readers()
    os.environ.update(orders.variables)
    tempfile.tempdir = orders.temporary
    try:
        with tempdirs.own_folders() as folder:
            os.environ["TMPDIR"] = folder
            try:
                _play(reports, orders, lifeline)
            finally:
                tempdirs.remove_own()  # a forked process does not run `atexit`'s functions
    except ParentGoneError:
        return
    except Exception as error:
        with contextlib.suppress(ParentGoneError):
            _report(reports, failure_of(error))
        sys.exit(1)
    finally:
        if parent_is_gone(lifeline):  # a killed pool left its own folder
            tempdirs.remove_abandoned()


def _report(reports: Connection, report: Any) -> None:
    with parent_reads():
        reports.send(report)


def _play(reports: Connection, orders: ActorOrders, lifeline: int) -> None:
    config = orders.config
    group = orders.group
    generation = orders.generation
    worker = group // config.groups_per_worker
    with contextlib.suppress(OSError):  # the worker's groups need not preempt each other
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if config.cores:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {config.cores[worker]})

    slots = Slots(orders.layout, orders.memory.number)
    games = SlotGroup(config, slots, group, functools.partial(_report, reports))
    games.abandoned = functools.partial(parent_is_gone, lifeline)

    # Workers that sleep for a random time do not run in step. A replacement neither sleeps nor
    # plays random steps: the other groups are out of step with it already.
    delay = 0.0
    warmup_steps = 0
    if generation == 0:
        delay = seeds.rng(config.seed, "delay", worker).uniform(0.0, config.warmup_seconds)
        warmup_steps = config.warmup_steps
    if wait([lifeline], delay):
        raise ParentGoneError
    _report(reports, UP)

    commands = orders.commands.number
    records = orders.records.number
    while len(command := os.read(commands, COMMAND.size)) == COMMAND.size:
        addressee, slot, row = COMMAND.unpack(command)
        if addressee < generation:
            continue  # meant for an earlier process
        if row != RESET_ROW:
            games.step(slot, row)
        else:
            games.reset(slot, warmup_steps)
        with parent_reads():
            os.write(records, RECORD.pack(generation, group, slot, row + 1))
    games.close()


def episode_seed(seed: int, env: int, episode: int) -> int:
    """The seed of the `episode`-th game of environment `env` in a run with `seed`."""
    return seeds.derive(seed, "episode", env, episode)


class _Views(NamedTuple):
    """The memory that a step reads and writes; action and reward belong to the row before that of
    the observation.
    """

    observation: spec.Row
    action: memoryview
    reward: memoryview


class SlotGroup:
    """Plays a group of environments with the actions of a row and writes the next row.

    An episode's final observation gets a row of its own, marked `last`; the action there is ignored
    and the row after it is the `first` of the next episode (next-step autoreset). With
    `same_step_autoreset` there are no such rows: the row after the end is the next episode's first,
    and a truncation counts as a termination.

    `on_episode` is called with env, episode, seed and the numbers of each episode that ends. A
    warm-up raises ParentGoneError once `abandoned` returns True: nobody reads the rows any more.
    """

    def __init__(
        self,
        config: ActorsConfig,
        slots: Slots,
        group: int,
        on_episode: Callable[[dict[str, float]], None],
    ) -> None:
        count = config.envs_per_group
        first_env = config.first_env + group * count
        self._seed = config.seed
        self._same_step = config.same_step_autoreset
        self._slots = slots
        self._on_episode = on_episode
        self.abandoned: Callable[[], bool] = never

        # Column c of a row belongs to environment `self._envs[c]` of the run.
        self._columns = range(count)
        self._envs = range(first_env, first_env + count)
        places = [seeds.derive(config.seed, "place", env) for env in self._envs]
        self._environments = registry.make_group(config.env, count, places, **config.options)

        # The running episodes.
        self._episode = np.full(count, -1, np.int32)
        self._next_episode = slots.next_episode[group]
        self._is_partial = [False] * count  # begun with random steps: not reported
        self._ended: list[int] = []  # columns whose newest row is a final observation

        self._views: dict[tuple[int, int], _Views] = {}
        self._pack_rewards = struct.Struct(f"={count}f").pack_into

    def _at(self, slot: int, row: int) -> _Views:
        # Making the views takes as long as a few steps of a game, and a group returns to the same
        # rows.
        views = self._views.get((slot, row))
        if views is None:
            slots = self._slots
            acted_row = max(row - 1, 0)
            views = _Views(
                spec.row({name: array[slot, row] for name, array in slots.observation.items()}),
                action=slots.action[slot, acted_row].data,
                reward=slots.reward[slot, acted_row].data,
            )
            self._views[slot, row] = views
        return views

    def reset(self, slot: int, warmup_steps: int = 0) -> None:
        """Starts an episode everywhere and writes row 0 of `slot`.

        So that the episodes do not run in step, every environment first plays a random number of
        random actions, at most `warmup_steps`. Episodes that began with them are not reported.
        """
        for column in self._columns:
            self._begin(column)
        self._ended = []
        if warmup_steps > 0:
            self._warm_up(warmup_steps)
        self._environments.observe(self._at(slot, 0).observation)
        slots = self._slots
        slots.first[slot, 0] = 1
        slots.last[slot, 0] = 0
        slots.episode[slot, 0] = self._episode

    def step(self, slot: int, row: int) -> None:
        """Plays the actions at `row` and writes row `row` + 1."""
        observation, action, reward = self._at(slot, row + 1)
        if row == 0:
            self._write_running(slot)
        # Where the row holds a final observation, its action is not played: the next episode
        # begins.
        columns: Any = self._columns
        if self._ended:
            begun = self._ended
            self._ended = []
            for column in begun:
                self._begin_at(slot, row + 1, column)
            columns = [column for column in columns if column not in begun]

        actions = action.tolist()
        rewards, ends = self._environments.step(actions, columns)
        self._pack_rewards(reward, 0, *rewards)
        if any(ends):
            self._end(slot, row + 1, ends)
        # After the ends: with `same_step_autoreset` the row shows the next episode's start.
        self._environments.observe(observation)

    def _write_running(self, slot: int) -> None:
        """Writes the flags of rows without an end; `step` writes only the exceptions."""
        slots = self._slots
        length = slots.layout.rollout
        slots.first[slot, 1:] = 0
        slots.last[slot, 1:] = 0
        slots.episode[slot, 1:] = self._episode
        slots.terminated[slot, :length] = 0
        slots.truncated[slot, :length] = 0

    def close(self) -> None:
        self._environments.close()

    def _end(self, slot: int, row: int, ends: list[int]) -> None:
        """Marks the episodes that ended with the action at row `row` - 1; `ends` has a code of
        `envs.spec` for each column.
        """
        slots = self._slots
        acted_row = row - 1
        for column, end in enumerate(ends):
            if not end:
                continue
            self._report(column, end)
            if self._same_step:
                slots.terminated[slot, acted_row, column] = 1
                self._begin_at(slot, row, column)
            else:
                slots.terminated[slot, acted_row, column] = end == TERMINATED
                slots.truncated[slot, acted_row, column] = end == TRUNCATED
                slots.last[slot, row, column] = 1
                self._ended.append(column)

    def _begin_at(self, slot: int, row: int, column: int) -> None:
        self._begin(column)
        self._slots.first[slot, row, column] = 1
        # `_write_running` gave all later rows the number of the episode before.
        self._slots.episode[slot, row:, column] = self._episode[column]

    def _begin(self, column: int) -> None:
        episode = int(self._next_episode[column])
        self._episode[column] = episode
        self._next_episode[column] = episode + 1
        self._is_partial[column] = False
        self._environments.start(column, episode_seed(self._seed, self._envs[column], episode))

    def _warm_up(self, limit: int) -> None:
        """Plays a random number of random actions in each environment, at most `limit`."""
        environment_spec = self._environments.spec
        actions: list[list[Action]] = []
        for env in self._envs:
            rng = seeds.rng(self._seed, "warmup", env)
            count = int(rng.integers(0, limit + 1))
            if environment_spec.action_size:
                actions.append(rng.uniform(-1, 1, (count, environment_spec.action_size)).tolist())
            else:
                actions.append(rng.integers(0, environment_spec.num_actions, count).tolist())

        for step in range(max(map(len, actions))):
            # An actor reads its pipe only between rows, and a warm-up may take long.
            if self.abandoned():
                raise ParentGoneError
            columns = [column for column in self._columns if step < len(actions[column])]
            # Of the others, which have played theirs, 0 is not played.
            drawn = [column[step] if step < len(column) else 0 for column in actions]
            _, ends = self._environments.step(self._allowed(drawn), columns)
            for column in columns:
                self._is_partial[column] = True
                if ends[column]:
                    self._begin(column)

    def _allowed(self, drawn: list[Action]) -> list[Action]:
        """The drawn actions [envs], in which actions that a state does not allow are replaced."""
        environment_spec = self._environments.spec
        if environment_spec.mask_field is None:
            return drawn
        observation = spec.empty_observation(environment_spec, (len(drawn),))
        self._environments.observe(observation)
        allowed: list[Action] = []
        for action, mask in zip(drawn, observation[environment_spec.mask_field], strict=True):
            legal = np.flatnonzero(mask)
            # Only numbered actions have masks.
            number = cast(int, action)
            allowed.append(int(legal[number % len(legal)]) if len(legal) else number)
        return allowed

    def _report(self, column: int, end: int) -> None:
        if self._is_partial[column]:
            return
        env = self._envs[column]
        episode = int(self._episode[column])
        identity = {"env": env, "episode": episode, "seed": episode_seed(self._seed, env, episode)}
        info = {
            name: float(value) for name, value in self._environments.episode_info(column).items()
        }
        self._on_episode({**identity, **info, "truncated": float(end == TRUNCATED)})
