"""What this machine has room for: memory and processes."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from motif_jax.support.errors import UserError

# Of a worker process with one game, beside what it shares with the others (measured: 29 MB); more for each further game.
WORKER_BYTES = 32 << 20
GAME_BYTES = 4 << 20


def require_workers(key: str, workers: int, games_each: int = 1) -> None:
    """Refuses a number of worker processes that the machine has not the memory or the room for, before one is started.

    Args:
      key: of the config, for the error.
      workers: processes.
      games_each: games in each of them.

    Raises:
      UserError: says what they need and what there is.
    """
    needed = workers * (WORKER_BYTES + (games_each - 1) * GAME_BYTES)
    memory, processes = available_memory(), available_processes()
    if memory is not None and needed > memory:
        raise UserError(
            f"config.{key}={workers}: so many processes need about {needed / 2**20:,.0f} MiB of memory, "
            f"{memory / 2**20:,.0f} MiB are left: choose fewer"
        )
    if processes is not None and workers > processes:
        raise UserError(
            f"config.{key}={workers}: must be at most {processes}, the processes that this machine has room for"
        )


def available_memory() -> int | None:
    """Bytes of memory that can still be had, None where the system does not say."""
    limits = []
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        limits.append(int(fields["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError):
        return None
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            ceiling = file.read().strip()
        with open("/sys/fs/cgroup/memory.current", encoding="ascii") as file:
            used = int(file.read())
        if ceiling != "max":
            limits.append(max(0, int(ceiling) - used))
    except OSError:
        pass  # no control groups of version 2: the machine's memory is the only limit
    return min(limits)


def available_processes() -> int | None:
    """How many more processes this user may start, None where the system does not say.

    Of what is left of each limit a tenth stays free for others.
    """
    limits = []
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    running = (
        sum(int(entry.name.isdigit()) for entry in Path("/proc").iterdir()) if os.path.isdir("/proc") else 0
    )
    if soft != resource.RLIM_INFINITY and os.getuid() != 0:  # root is not held to it
        limits.append(soft - running)
    for ceiling, used in (
        ("/proc/sys/kernel/pid_max", running),
        ("/proc/sys/kernel/threads-max", running),
        ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids.current"),
    ):
        most = _number(ceiling)
        now = used if isinstance(used, int) else _number(used)
        if most is not None:
            limits.append(most - (now or 0))
    return max(0, int(0.9 * min(limits))) if limits else None


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):  # not there, or "max"
        return None
