"""An actor process: `python -m motif_jax.actors.worker`, its orders as a line of JSON on standard input, which stays open.

It steps its groups whenever a command comes, and ends when the pipe of commands is closed: when its parent is done
with it, or no longer there. Where an engine that is stuck keeps it from seeing that, the kernel ends it.
"""

from __future__ import annotations

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
from motif_jax.actors.group import SlotGroup, start_delay
from motif_jax.actors.rollouts import END_ROW, HELLO_ROW, RESET_ROW, ActorsConfig
from motif_jax.actors.slots import Slots
from motif_jax.envs import registry
from motif_jax.support.lifeline import end_with_parent

# Fixed-size records; a pipe passes writes below 4096 bytes on as a whole.
COMMAND = struct.Struct("<4i")  # generation, group, slot, row whose actions lie ready
RECORD = struct.Struct("<5i")  # worker, generation, group, slot, row that has been written
_PIPE_ATOMIC = 4096
_TRACEBACK_LIMIT = 3000


def run(orders: Mapping[str, Any]) -> bool:
    """Serves the groups of one worker until the pipe of commands ends; returns whether the parent said that it would.

    Args:
      orders: `config` (ActorsConfig), `layout` (the parent's, as text), `worker`, `generation`, `parent` (its process id), and
        the file descriptors `memory`, `commands` (read), `records` and `reports` (write).

    Raises:
      RuntimeError: the slots would be laid out in another way than in the parent.
    """
    config = ActorsConfig(**orders["config"])
    worker, generation = orders["worker"], orders["generation"]
    layout = config.layout()
    if str(layout) != orders["layout"]:
        raise RuntimeError(
            "this process would lay out the trajectory slots in another way than the one that started it: was the code "
            f"changed since then? Start the training again. Here: {layout}"
        )
    slots = Slots(layout, orders["memory"])

    def on_episode(record: dict[str, float]) -> None:
        report(orders["reports"], {"episode": record})

    groups = {}
    for group in range(worker * config.groups_per_worker, (worker + 1) * config.groups_per_worker):
        environments = registry.make_group(config.env, config.envs_per_group, **config.options)
        first_env = config.first_env + group * config.envs_per_group
        groups[group] = SlotGroup(
            environments, slots, group, first_env, config.seed, on_episode, config.same_step_autoreset
        )
    fresh = generation == 0
    if fresh:
        start_delay(config.seed, worker, config.warmup_seconds)
    report(orders["reports"], {"up": worker})  # to the thread that watches: inference may be busy compiling
    os.write(orders["records"], RECORD.pack(worker, generation, -1, -1, HELLO_ROW))
    dismissed = False
    while data := os.read(orders["commands"], 64 * COMMAND.size):
        for sender, group, slot, row in COMMAND.iter_unpack(data):
            if row == END_ROW:
                dismissed = True
                continue
            if sender != generation:
                continue  # meant for the process that this one replaces
            if row == RESET_ROW:
                groups[group].reset(slot, config.warmup_steps if fresh else 0)
            else:
                groups[group].step(slot, row)
            os.write(orders["records"], RECORD.pack(worker, generation, group, slot, row + 1))
    for served in groups.values():
        served.close()
    return dismissed


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


def main() -> int:
    """Reads the orders and serves; an error goes to the parent, who shows it if it does not help to start anew."""
    # A batch system's signals reach the whole process group: the parent decides what they mean.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    parent_lives = False
    try:
        line = sys.stdin.readline()
        if not line.endswith("\n"):
            return 0  # the parent was killed before it had written them
        orders = json.loads(line)
        end_with_parent(sys.stdin.fileno())
        try:
            # Its process id does not say whether the parent lives: one that is killed closes its pipes before its
            # children get another parent.
            parent_lives = run(orders)
        except BrokenPipeError:
            return 0  # the parent is gone
        except Exception:
            parent_lives = os.getppid() == orders["parent"]
            text = traceback.format_exc().encode("ascii", "replace").decode()[-_TRACEBACK_LIMIT:]
            report(orders["reports"], {"error": text, "worker": orders["worker"]})
            return 1
    finally:
        folders.remove_own(Path(os.environ["TMPDIR"]), parent_lives)
    return 0


if __name__ == "__main__":
    sys.exit(main())
