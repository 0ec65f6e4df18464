"""Makes the C library's heap keep the memory that XLA's CPU programs free between two runs."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import platform
from typing import Any

# Parameters of glibc's mallopt(3), from <malloc.h>.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Makes this process's heap keep freed blocks for the next allocation; returns whether it could
    (glibc only).

    By default glibc returns large blocks to the system, which clears every page again: a quarter of
    the time of an update of the published network. Call it before jax starts its threads: heaps
    that they already have do not change.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # Large blocks come from the heap instead of mmap, the heap never shrinks, and all threads share
    # one.
    options = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _NEVER), (_M_ARENA_MAX, 1))
    return all(mallopt(name, value) == 1 for name, value in options)


def accelerator_possible(platforms: str | None) -> bool:
    """Whether jax may find an accelerator among `platforms` (empty: any), without starting its
    backends.
    """
    if platforms:
        return platforms != "cpu"
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    return bool(plugins) or any(
        importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu")
    )


def in_use(device: Any) -> str | None:
    """A jax device's memory in use and in all, as '3.1 GB of 80'; None where it reports none, as no
    CPU does.
    """
    stats = device.memory_stats() or {}
    used = stats.get("bytes_in_use")
    if used is None:
        return None
    text = f"{used / 1e9:.1f} GB"
    limit = stats.get("bytes_limit")
    if limit is not None:
        text += f" of {limit / 1e9:.0f}"
    return text


def return_freed_memory() -> bool:
    """Returns freed blocks to the system once, such as the compiler's 370 MB; returns whether it
    could.
    """
    return platform.libc_ver()[0] == "glibc" and ctypes.CDLL(None).malloc_trim(0) == 1
