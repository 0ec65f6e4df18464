"""Makes the C library's heap keep the memory that XLA's CPU programs free between two runs."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import platform

# Parameters of glibc's mallopt(3), from <malloc.h>.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Makes this process's heap keep freed blocks for the next allocation; returns whether it could (glibc only).

    XLA allocates a CPU program's temporaries again for every run. By default glibc returns large blocks to the system, which
    clears every page again: a quarter of the time of an update of the published network. The heap stays at its largest
    size. Call it before jax starts its threads: heaps that they already have do not change.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _NEVER), (_M_ARENA_MAX, 1))
    return all(mallopt(name, value) == 1 for name, value in settings)


def accelerator_possible(platforms: str | None) -> bool:
    """Whether jax may find an accelerator, without starting its backends.

    Args:
      platforms: `jax.config.jax_platforms`; None or empty for any.
    """
    if platforms:
        return platforms != "cpu"
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    return bool(plugins) or any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))


def return_freed_memory() -> bool:
    """Returns freed blocks to the system once; returns whether it could.

    Call it when everything is compiled: otherwise the compiler's memory (370 MB with the quickstart's small network)
    stays in a heap that keeps what is freed.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    return ctypes.CDLL(None).malloc_trim(0) == 1
