"""How the tests compile: tiny models take longer to compile than to run, so that the compiler's
best is left out.
"""

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

# Options of XLA and their values. Of two emitters of the CPU's code the older takes half of the
# newer's time where neither optimises. A program that is cut into parts compiles on several cores,
# which other tests have, and takes a tenth more of them.
_QUICK_OPTIONS = {
    "xla_cpu_use_fusion_emitters": "false",
    "xla_cpu_parallel_codegen_split_count": "1",
}


@functools.cache
def compiler_knows(option: str) -> bool:
    """Whether the installed compiler has an option of this name: XLA ends a process that asks for
    another.

    The name is looked for in the library itself, since XLA's flags must be set before jax is
    imported: as a string of C, since the names of options that were withdrawn stay in its tables.
    """
    name = b"\0" + option.encode() + b"\0"
    spec = importlib.util.find_spec("jaxlib")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        for library in Path(folder).glob("*.so"):
            with (
                library.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
            ):
                if content.find(name) >= 0:
                    return True
    return False


def compile_quickly() -> None:
    """Sets the environment of this process, which its children inherit, before jax is imported.

    Nothing is changed where JAX_DISABLE_MOST_OPTIMIZATIONS is set: with 0 the tests compile as a
    training does.
    """
    if "JAX_DISABLE_MOST_OPTIMIZATIONS" in os.environ:
        return
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    flags = [f"--{name}={value}" for name, value in _QUICK_OPTIONS.items() if compiler_knows(name)]
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags]).strip()


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
    """Yields a list of the names of programs, such as 'jit(step)', that jax compiles in the block
    or takes from disk.
    """
    import jax

    log = _CompilationLog()
    logger = logging.getLogger("jax")
    logger.addHandler(log)
    try:
        with jax.log_compiles():
            yield log.names
    finally:
        logger.removeHandler(log)
