"""Tiny models take longer to compile than to run: the compiler's best is left out."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Of two emitters of the CPU's code the older takes half of the newer's time where neither optimises.
_EMITTERS = "xla_cpu_use_fusion_emitters"


@functools.cache
def compiler_knows(option: str) -> bool:
    """Whether the installed compiler has an option of this name: XLA ends a process that asks for another.

    The name is looked for in the library itself, since XLA's flags must be set before jax is imported: as a string of C, since the names of
    options that were withdrawn stay in its tables.
    """
    name = b"\0" + option.encode() + b"\0"
    spec = importlib.util.find_spec("jaxlib")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        for library in Path(folder).glob("*.so"):
            with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if content.find(name) >= 0:
                    return True
    return False


def _quick_environment() -> dict[str, str]:
    flags = os.environ.get("XLA_FLAGS", "")
    if compiler_knows(_EMITTERS):
        flags = f"{flags} --{_EMITTERS}=false".strip()
    return {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": flags}


# The environment of a program that compiles as `quickly` does.
QUICKLY = _quick_environment()


class _CompilationLog(logging.Handler):
    """Notes the names of programs in jax's messages "Compiling NAME with ..."."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        match = re.match(r"Compiling (\S+) with", record.getMessage())
        if match:
            self.names.append(match[1])


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """Yields a list of the names of programs, such as 'jit(step)', that jax compiles in the block or takes from disk."""
    import jax

    log = _CompilationLog()
    logger = logging.getLogger("jax")
    logger.addHandler(log)
    try:
        with jax.log_compiles():
            yield log.names
    finally:
        logger.removeHandler(log)


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Compiles quickly what is compiled in the block, and leaves jax's settings as they were."""
    import jax
    from jax._src import compiler

    names = (
        "jax_disable_most_optimizations",
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
    )
    before = {name: jax.config.values[name] for name in names}
    options_of_jax = compiler.get_compile_options

    # XLA's flags are read once by a process; only here can they be set for a part of it.
    def options(*args: Any, **kwargs: Any) -> Any:
        chosen = options_of_jax(*args, **kwargs)
        backend = kwargs.get("backend")
        platform = jax.default_backend() if backend is None else backend.platform
        # Another device's compiler refuses options of the CPU's.
        if platform == "cpu" and compiler_knows(_EMITTERS):
            chosen.env_option_overrides = [*chosen.env_option_overrides, (_EMITTERS, False)]
        return chosen

    jax.config.update(names[0], True)
    compiler.get_compile_options = options
    try:
        yield
    finally:
        compiler.get_compile_options = options_of_jax
        for name, value in before.items():
            jax.config.update(name, value)
