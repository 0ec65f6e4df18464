"""Measures the memory that this machine has left, and refuses workers that need more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from motif_jax.core.errors import UserError

# Memory of a worker process with one game, without what workers share (measured: 29 MB); each
# further game adds to it.
WORKER_BYTES = 32 << 20
GAME_BYTES = 4 << 20


def require_workers(key: str, workers: int, games_each: int = 1) -> None:
    """Raises UserError, for the config's `key`, for more worker processes than memory is left
    for.
    """
    needed = workers * (WORKER_BYTES + (games_each - 1) * GAME_BYTES)
    memory = available_memory()
    if memory is not None and needed > memory:
        raise UserError(
            f"config.{key}={workers}: these processes need about {needed / 2**20:,.0f} MiB of memory, "
            f"{memory / 2**20:,.0f} MiB are left: choose fewer"
        )


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes of memory that can still be had, None where the system does not say; `root` has proc/
    and sys/.
    """
    free = _fields(root / "proc/meminfo").get("MemAvailable")
    if free is None:
        return None
    # The machine's own limit, then those of the control groups, as Slurm and containers set them;
    # the tightest counts.
    limits = [free * 1024]
    for group in _groups(root):
        ceiling = _number(group / "memory.max")
        used = _number(group / "memory.current")
        if ceiling is not None and used is not None:
            # Cached files count as used, but the system frees them on demand.
            stat = _fields(group / "memory.stat")
            limits.append(
                ceiling - used + stat.get("inactive_file", 0) + stat.get("active_file", 0)
            )
    return max(0, min(limits))


def _groups(root: Path) -> Iterator[Path]:
    """The visible control groups (version 2) that limit this process: its own and all above it."""
    try:
        lines = (
            (root / "proc/self/cgroup")
            .read_text(encoding="utf-8", errors="surrogateescape")
            .splitlines()
        )
    except OSError:
        lines = []
    names = [line.removeprefix("0::").lstrip("/") for line in lines if line.startswith("0::")]
    process_group = PurePosixPath(names[0] if names else "")
    if ".." in process_group.parts:  # the group lies outside of what this process sees
        process_group = PurePosixPath()
    for group in dict.fromkeys((process_group, *process_group.parents)):
        yield root / "sys/fs/cgroup" / group


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # not there, or "max"
        return None


def _fields(path: Path) -> dict[str, int]:
    """Numbers by name, of lines such as "MemFree: 5 kB" or "file 5"; none where there is no such
    file.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    words = [line.replace(":", " ").split() for line in lines]
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdecimal()}
