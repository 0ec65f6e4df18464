"""An actor process, which plays the environments of one group.

It reads commands from a pipe until the pipe ends. For each command it writes a row of a slot and
sends back a record of it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import struct
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any

from motif_jax.core import tempdirs
from motif_jax.core.errors import UserError
from motif_jax.core.files import full_disk
from motif_jax.core.parent_death import (
    ParentGoneError,
    end_with_parent,
    lifeline_of_parent,
    parent_is_gone,
)
from motif_jax.core.standard_streams import outlive_readers
from motif_jax.rl.actors.group import SlotGroup, start_delay
from motif_jax.rl.actors.rollouts import RESET_ROW, ActorsConfig
from motif_jax.rl.actors.slots import SlotLayout, Slots

# Of fixed size, so that readers need no framing: a pipe never splits writes of less than 4,096
# bytes.
COMMAND = struct.Struct("<3i")  # generation, slot, row whose actions lie ready
RECORD = struct.Struct("<4i")  # generation, group, slot, row that has been written
# Kinds of reports.
UP = "up"
EPISODE = "episode"
ERROR = "error"
REFUSAL = "refusal"
FULL_DISK = "full disk"
_MAX_TRACEBACK_CHARACTERS = 3000


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
    """The arguments of an actor process.

    Attributes:
      generation: how many processes have played the group before.
      variables: environment variables. A forkserver would pass on those of the time at which it
          started.
      temporary: folder of temporary files.
      memory: the block of the slots.
      commands: the process's pipe of commands.
      records: the pipe of records, which all processes share.
      reports: takes (kind, content) for everything else.
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
    reports: Connection


def serve(orders: ActorOrders) -> None:
    """Plays until the pipe of commands ends. Errors are sent to the pool, which raises one if
    restarts do not help.
    """
    lifeline = lifeline_of_parent()
    end_with_parent(lifeline)
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
                _play(orders, lifeline)
            finally:
                tempdirs.remove_own()  # a forked process does not run `atexit`'s functions
    except ParentGoneError:
        return
    except Exception as error:
        with contextlib.suppress(ParentGoneError):
            _report(orders, *_report_of(error, orders))
        sys.exit(1)
    finally:
        if parent_is_gone(lifeline):  # a killed pool left its own folder
            tempdirs.remove_abandoned()


def _report(orders: ActorOrders, kind: str, content: Any) -> None:
    with _parent_reads():
        orders.reports.send((kind, content))


@contextlib.contextmanager
def _parent_reads() -> Iterator[None]:
    """Raises ParentGoneError where nobody reads a pipe: a ConnectionError may also come from an
    environment.
    """
    try:
        yield
    except BrokenPipeError as error:
        raise ParentGoneError from error


def _report_of(error: Exception, orders: ActorOrders) -> tuple[str, Any]:
    if isinstance(error, UserError):
        return REFUSAL, str(error)
    disk_error = full_disk(error)
    if disk_error is not None:
        return FULL_DISK, (disk_error.errno, str(disk_error.filename or orders.temporary))
    trace = "".join(traceback.format_exception(error))
    return ERROR, trace[-_MAX_TRACEBACK_CHARACTERS:]


def _play(orders: ActorOrders, lifeline: int) -> None:
    """Plays until the pipe of commands ends; `lifeline` is readable once the pool's process is
    gone.
    """
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
    games = SlotGroup(config, slots, group, functools.partial(_report, orders, EPISODE))
    games.abandoned = functools.partial(parent_is_gone, lifeline)

    # A replacement neither waits nor plays random steps: the other groups are out of step with it
    # already.
    is_first = generation == 0
    delay = start_delay(config.seed, worker, config.warmup_seconds) if is_first else 0.0
    warmup_steps = config.warmup_steps if is_first else 0
    if wait([lifeline], delay):
        raise ParentGoneError
    _report(orders, UP, None)

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
        with _parent_reads():
            os.write(records, RECORD.pack(generation, group, slot, row + 1))
    games.close()
