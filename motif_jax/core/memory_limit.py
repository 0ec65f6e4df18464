"""Explains refused memory in one line: what Python or JAX was refused, and what to make smaller."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Mapping
from typing import Any, NoReturn

from motif_jax.core.errors import causes
from motif_jax.core.standard_streams import write_line

# Keys that memory grows with, in the order in which they are named, and keys that divide the work.
_GROWS_WITH = (
    "batch_size",
    "batch",
    "actors.envs_per_worker",
    "actors.workers",
    "rollout",
    "algorithm.microbatch_size",
    "max_len",
    "length",
    "lanes",
    "workers",
    "ensemble.members",
    "network.prompt_tokens",
    "chunk_steps",
)
_NAMED = 3  # so many of them are named at most
_DIVIDERS = ("num_shards", "accumulate", "sharding.fsdp")
# Errors of the loader of shared libraries.
_OF_LOADER = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")


def limit() -> int | None:
    """The limit of a process's address space in bytes (`ulimit -v`), None without one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def ran_out(error: BaseException) -> str | None:
    """The message of an exception about refused memory, in `error` or the chain of its causes; None
    without one.
    """
    for cause in causes(error):
        message = " ".join(str(cause).split())
        no_memory = isinstance(cause, OSError) and cause.errno == errno.ENOMEM
        # As jax says it.
        exhausted = isinstance(cause, RuntimeError) and message.startswith("RESOURCE_EXHAUSTED")
        not_loaded = isinstance(cause, ImportError) and any(part in message for part in _OF_LOADER)
        if isinstance(cause, MemoryError) or no_memory or exhausted or not_loaded:
            return message or "an allocation failed"
    return None


def explained(message: str, values: Mapping[str, Any]) -> str:
    """The line for the user: the `message` of `ran_out`, and which keys of a config (dotted name ->
    value) make the stage smaller.
    """
    sizes = {key: values[key] for key in _GROWS_WITH if key in values}
    large = [
        f"config.{key}={value}"
        for key, value in sizes.items()
        if isinstance(value, int) and value > 1
    ]
    remedies: list[str] = []
    if large:
        remedies.append(f"make {' or '.join(large[:_NAMED])} smaller")
    dividers = [key for key in _DIVIDERS if key in values]
    if dividers:
        remedies.append(f"make config.{dividers[0]}={values[dividers[0]]} larger")
    address_space = limit()
    more = f"more than {address_space / 2**20:,.0f} MiB (ulimit -v)" if address_space else "more"
    remedies.append(f"or give it {more}" if remedies else f"give it {more}")
    return (
        f"memory has ended ({message[:200]}): {', '.join(remedies)}; what was saved "
        "before is kept, and with more memory the same command resumes"
    )


def leave(line: str, code: int) -> NoReturn:
    """Ends the process at once with `line` on stderr: without memory, threads that are asked to end
    do not always do so.
    """
    write_line(line)
    os._exit(code)
