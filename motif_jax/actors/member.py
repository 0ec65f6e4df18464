"""An actor process, a member of its group's ring.

It plays its games when a round comes down the ring, passes the round on, and ends when its pipe of commands is closed. A
signal ends it when the parent dies; the kernel kills it if the engine is stuck.

Members are forked from a server (`fork_server`) or, where forking fails, started each by itself:
`python -m motif_jax.actors.member`, its orders as a line of JSON on standard input, which stays open.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import struct
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.actors import folders
from motif_jax.actors.group import SlotGroup, place_numbers, start_delay
from motif_jax.actors.rollouts import END_ROW, RESET_ROW, ActorsConfig
from motif_jax.actors.slots import WAITING, Slots
from motif_jax.actors.teams import Member, members
from motif_jax.envs import registry
from motif_jax.support import parent_death
from motif_jax.support.files import full_disk

# Fixed-size records; a pipe passes writes below 4096 bytes on as a whole.
COMMAND = struct.Struct("<3i")  # generation, slot, row whose actions lie ready
RECORD = struct.Struct("<4i")  # generation, group, slot, row that has been written
_PIPE_ATOMIC = 4096
_TRACEBACK_LIMIT = 3000


class ParentGoneError(BaseException):
    """The parent died. Not an Exception, so that environments do not catch it."""


def run(orders: Mapping[str, Any]) -> bool:
    """Plays the games of one member until the pipe of commands ends; returns whether the parent ended it.

    Args:
      orders: `config` (ActorsConfig), `layout` (the parent's, as text), `member` (its number), `generation` (of its group when
        it was started), `folder` (for its files), `resumes` (games that are remembered continue), `again` (but not this member's), and file descriptors: `memory` of the slots, `commands` (read), `following`
        (write: the next member's commands; -1 for the last), `records` and `reports` (write), `turns` (see `_play_rounds`; -1
        where a worker has one group), `lifeline` (see `serve`).

    Raises:
      RuntimeError: the slots would be laid out in another way than in the parent.
    """
    config = ActorsConfig(**orders["config"])
    layout = config.layout()
    if str(layout) != orders["layout"]:
        raise RuntimeError(
            "this process would lay out the trajectory slots in another way than the one that started it: was the code "
            f"changed since then? Start the training again. Here: {layout}"
        )
    member, generation = members(config)[orders["member"]], orders["generation"]
    _settle(config, member)
    slots = Slots(layout, orders["memory"])

    def on_episode(record: dict[str, float]) -> None:
        report(orders["reports"], {"episode": record})

    first_env, count = config.first_env + member.group * config.envs_per_group, member.stop - member.start
    places = place_numbers(config.seed, first_env + member.start, count)
    environments = registry.make_group(config.env, count, places, **config.options)
    share = (member.start, member.stop)
    games = SlotGroup(config, environments, slots, member.group, on_episode, share)
    if orders["again"]:
        games.forget()
    if generation == 0:
        start_delay(config.seed, member.worker, config.warmup_seconds)
    report(orders["reports"], {"member": member.number, "generation": generation})
    dismissed = _play_rounds(config, member, games, slots, orders)
    games.close()
    return dismissed


def _play_rounds(
    config: ActorsConfig,
    member: Member,
    games: SlotGroup,
    slots: Slots,
    orders: Mapping[str, Any],
) -> bool:
    """Takes rounds from the pipe of commands and hands them on; returns whether the last one was the parent's farewell.

    Groups of one worker take turns: the first member of a ring takes the lock `turns` for it, the last one gives it
    back. The lock belongs to an open file that the ring and the parent share, so that the parent can give back what
    a member that died has taken. That two groups play at once would do no harm, but both would be late.

    `slots.turn` says whose turn it is, for the parent to know who it is that hangs. A round that a process of the ring has
    died in (`slots.generation`) goes no further, and gives no turn back: that may be the next round's already.
    """
    commands, following = orders["commands"], orders["following"]
    records, turns = orders["records"], orders["turns"]
    turn, generation = slots.turn.data, slots.generation.data
    group, place, is_first, is_last = member.group, member.place, member.place == 0, member.is_last
    takes_turns = turns >= 0
    while len(command := os.read(commands, COMMAND.size)) == COMMAND.size:
        sender, slot, row = COMMAND.unpack(command)
        if row == END_ROW:
            if not is_last:
                os.write(following, command)
            return True
        if is_first:
            if takes_turns:
                turn[group] = WAITING
                fcntl.flock(turns, fcntl.LOCK_EX)
            turn[group] = 0
        if sender < generation[group]:
            if is_first and takes_turns:  # the parent had given the turn back before this one had it
                fcntl.flock(turns, fcntl.LOCK_UN)
            continue
        if row == RESET_ROW and config.remembered and (sender > 0 or orders["resumes"]):
            games.resume(slot)
        elif row == RESET_ROW:
            games.reset(slot, config.warmup_steps if sender == 0 else 0)
        else:
            games.step(slot, row)
        if sender < generation[group]:
            continue
        if is_last:
            turn[group] = 0
            if takes_turns:
                # Before the record, whose answer the first member may have already: it would lose the turn it took for it.
                fcntl.flock(turns, fcntl.LOCK_UN)
            os.write(records, RECORD.pack(sender, group, slot, row + 1))
        else:
            turn[group] = place + 1
            os.write(following, command)
    return False


def _settle(config: ActorsConfig, member: Member) -> None:
    """Reports this process's state to the scheduler, if it listens.

    SCHED_BATCH: a woken member need not preempt the one before it, which is about to wait.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if config.cores:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {config.cores[member.worker]})


def report(descriptor: int, message: Mapping[str, Any]) -> None:
    """Writes one line of JSON to a pipe that several processes share.

    Raises:
      ValueError: the line is too long to be passed on as a whole.
    """
    line = json.dumps(message).encode() + b"\n"
    if len(line) > _PIPE_ATOMIC:
        raise ValueError(
            f"a report of {len(line)} bytes is longer than the {_PIPE_ATOMIC} a pipe passes on whole"
        )
    os.write(descriptor, line)


def serve(orders: Mapping[str, Any]) -> int:
    """Calls `run` and reports its errors to the parent; returns the exit code.

    The parent shows an error if a restart does not help, and a full disk at once. `orders["lifeline"]` is the reading end of a
    pipe that the parent holds open and never writes to.
    """
    ignore_signals_to_the_group()
    parent_lives = False
    try:
        parent_death.end_with_parent(orders["lifeline"])
        try:
            parent_death.call_on_parent_death(orders["lifeline"], _parent_is_gone)
            # Its process id does not say whether the parent lives: one that is killed closes its pipes before its
            # children get another parent.
            parent_lives = run(orders)
        except (BrokenPipeError, ParentGoneError):
            return 0
        except Exception as error:
            parent_lives = not parent_death.parent_is_gone(orders["lifeline"])
            report(orders["reports"], {"member": orders["member"], **_as_report(error, orders["folder"])})
            return 1
    finally:
        parent_death.ignore_parent_death()
        folders.remove_own(Path(orders["folder"]), parent_lives)
    return 0


def _as_report(error: Exception, folder: str) -> dict[str, Any]:
    """An error as sent to the parent: of a full disk its number and the file (`folder` if none is named), else a traceback."""
    if (full := full_disk(error)) is not None:
        name = str(full.filename or folder)
        return {"full_disk": [full.errno, name if len(json.dumps(name)) < _TRACEBACK_LIMIT else folder]}
    text = "".join(traceback.format_exception(error))
    return {"error": text.encode("ascii", "replace").decode()[-_TRACEBACK_LIMIT:]}


def _parent_is_gone() -> None:
    raise ParentGoneError


def ignore_signals_to_the_group() -> None:
    """Batch systems signal the whole process group; only the parent reacts."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def main() -> int:
    """Reads the orders of a member that was started by itself, and serves."""
    folder, line = os.environ["TMPDIR"], sys.stdin.readline()
    if not line.endswith("\n"):  # the parent was killed before it had written them
        folders.remove_own(Path(folder), parent_lives=False)
        return 0
    return serve({**json.loads(line), "folder": folder, "lifeline": sys.stdin.fileno()})


if __name__ == "__main__":
    sys.exit(main())
