"""Explains refused memory in one line: what Python or JAX was refused, and what to make smaller."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Mapping
from typing import Any, NoReturn

from motif_jax.core.errors import causes

# Keys that memory grows with, in the order in which they are named, and keys that divide the work.
_GROWS_WITH = (
    "batch_size batch actors.envs_per_worker actors.workers rollout algorithm.microbatch_size max_len length lanes workers "
    "ensemble.members network.prompt_tokens chunk_steps"
).split()
_NAMED = 3
_DIVIDERS = ("num_shards", "accumulate", "sharding.fsdp")
# Errors of the loader of shared libraries.
_OF_LOADER = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")


def limit() -> int | None:
    """The limit of a process's address space in bytes (`ulimit -v`), None without one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def ran_out(error: BaseException) -> str | None:
    """The message of an exception about refused memory, in `error` or the chain of its causes; None without one."""
    for each in causes(error):
        words = " ".join(str(each).split())
        no_memory = isinstance(each, OSError) and each.errno == errno.ENOMEM
        exhausted = isinstance(each, RuntimeError) and words.startswith("RESOURCE_EXHAUSTED")
        not_loaded = isinstance(each, ImportError) and any(part in words for part in _OF_LOADER)
        if isinstance(each, MemoryError) or no_memory or exhausted or not_loaded:
            return words or "an allocation failed"
    return None


def explained(what: str, values: Mapping[str, Any]) -> str:
    """The line for the user: `what` was refused, and which keys of a config (dotted name -> value) make the stage smaller."""
    sizes = {key: values[key] for key in _GROWS_WITH if key in values}
    large = [f"config.{key}={value}" for key, value in sizes.items() if isinstance(value, int) and value > 1]
    ways = [f"make {' or '.join(large[:_NAMED])} smaller"] if large else []
    ways += [f"make config.{key}={values[key]} larger" for key in _DIVIDERS if key in values][:1]
    bound = limit()
    more = f"more than {bound / 2**20:,.0f} MiB (ulimit -v)" if bound else "more"
    return (
        f"memory has ended ({what[:200]}): {', '.join([*ways, f'or give it {more}' if ways else f'give it {more}'])}; what was saved "
        "before is kept, and with more memory the same command resumes"
    )


def leave(line: str, code: int) -> NoReturn:
    """Ends the process at once with `line` on stderr: without memory, threads that are asked to end do not always do so."""
    os.write(2, f"{line}\n".encode())
    os._exit(code)
