"""An actor process, which plays the environments of one group.

For each command, read from a pipe until that ends, it writes a row and sends back a record of it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import os
import struct
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any

from motif_jax.core import tempdirs
from motif_jax.core.errors import UserError
from motif_jax.core.files import full_disk
from motif_jax.core.parent_death import end_with_parent, parent_is_gone
from motif_jax.rl.actors.group import SlotGroup, start_delay
from motif_jax.rl.actors.rollouts import RESET_ROW, ActorsConfig
from motif_jax.rl.actors.slots import SlotLayout, Slots

# Fixed-size records; a pipe passes writes below 4096 bytes on as a whole.
COMMAND = struct.Struct("<3i")  # generation, slot, row whose actions lie ready
RECORD = struct.Struct("<4i")  # generation, group, slot, row that has been written
UP, EPISODE, ERROR, REFUSAL, FULL_DISK = "up", "episode", "error", "refusal", "full disk"  # kinds of reports
_TRACEBACK_LIMIT = 3000


class Descriptor:
    """Wraps a file descriptor in an argument of a new process, which receives a duplicate."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _received, (reduction.DupFd(self.number),)


def _received(passed: Any) -> Descriptor:
    return Descriptor(passed.detach())


@dataclass(frozen=True)
class ActorOrders:
    """The arguments of an actor process.

    Attributes:
      generation: how many processes have played the group before.
      resumes: remembered episodes continue.
      forget: remembered episodes do not continue: rebuilt, they have killed another process.
      variables: the environment variables; those of a forkserver are of the time at which it started.
      memory: of the slots.
      commands, records: the process's pipe, and the one that all processes share.
      reports: takes (kind, content).
    """

    config: ActorsConfig
    layout: SlotLayout
    group: int
    generation: int
    resumes: bool
    forget: bool
    variables: Mapping[str, str]
    temporary: str
    memory: Descriptor
    commands: Descriptor
    records: Descriptor
    reports: Connection


def serve(orders: ActorOrders) -> None:
    """Plays until the pipe of commands ends. Errors are sent to the pool, which raises one if restarts do not help."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    end_with_parent(parent.sentinel)
    gc.freeze()  # keeps the collector from writing to the imported objects' memory, which forked processes share
    os.dup2(2, 1)  # engines' prints go to the log: standard output belongs to the pool
    os.environ.update(orders.variables)
    tempfile.tempdir = orders.temporary
    try:
        with tempdirs.own_folders() as folder:
            os.environ["TMPDIR"] = folder
            try:
                _play(orders, parent.sentinel)
            finally:
                tempdirs.remove_own()  # a forked process does not run `atexit`'s functions
    except BrokenPipeError:  # the pool's process is gone
        return
    except Exception as error:
        report: tuple[str, Any] = ERROR, "".join(traceback.format_exception(error))[-_TRACEBACK_LIMIT:]
        if isinstance(error, UserError):
            report = REFUSAL, str(error)
        elif (full := full_disk(error)) is not None:
            report = FULL_DISK, (full.errno, str(full.filename or orders.temporary))
        with contextlib.suppress(BrokenPipeError):
            orders.reports.send(report)
        sys.exit(1)
    finally:
        if parent_is_gone(parent.sentinel):  # a killed pool left its own folder
            tempdirs.remove_abandoned()


def _play(orders: ActorOrders, lifeline: int) -> None:
    config, group, generation = orders.config, orders.group, orders.generation
    worker = group // config.groups_per_worker
    with contextlib.suppress(OSError):  # the worker's groups need not preempt each other
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if config.cores:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {config.cores[worker]})
    slots = Slots(orders.layout, orders.memory.number)
    games = SlotGroup(config, slots, group, lambda record: orders.reports.send((EPISODE, record)))
    games.abandoned = functools.partial(parent_is_gone, lifeline)
    if orders.forget:
        games.forget()
    delay = start_delay(config.seed, worker, config.warmup_seconds) if generation == 0 else 0.0
    if wait([lifeline], delay):
        raise BrokenPipeError
    orders.reports.send((UP, None))
    resumes = bool(config.remembered) and (generation > 0 or orders.resumes)
    warmup_steps = config.warmup_steps if generation == 0 else 0
    commands, records = orders.commands.number, orders.records.number
    while len(command := os.read(commands, COMMAND.size)) == COMMAND.size:
        sender, slot, row = COMMAND.unpack(command)
        if sender < generation:
            continue  # meant for an earlier process
        if row != RESET_ROW:
            games.step(slot, row)
        elif resumes:
            games.resume(slot)
        else:
            games.reset(slot, warmup_steps)
        os.write(records, RECORD.pack(generation, group, slot, row + 1))
    games.close()
