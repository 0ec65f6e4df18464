"""Options of jax that change numbers: the package computes with jax's own defaults.

A user's environment (`JAX_ENABLE_X64=1`) or program may have set others, for other work. A command
takes the defaults for its process (`take_defaults`), a stage in a user's process for as long as it
runs (`lent`), a function of the library in the thread that calls it (`defaults`).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from typing import TypeVar

DEFAULTS = {
    "jax_enable_x64": False,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
}
# Those that a stage sets besides.
_SET_BY_STAGES = (
    "jax_default_matmul_precision",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
)

T = TypeVar("T")


def take_defaults() -> None:
    """Sets `DEFAULTS` for this process and those that it starts; imports no jax."""
    # jax reads its variables when it is imported.
    os.environ |= {name.upper(): str(value) for name, value in DEFAULTS.items()}
    if "jax" in sys.modules:
        for name, value in DEFAULTS.items():
            sys.modules["jax"].config.update(name, value)


def set_matmul_precision(precision: str) -> None:
    """Sets for this process how float32 matrix products are computed: 'default' lets recent GPUs
    round factors to TF32 (10 bits), 'highest' does not.
    """
    import jax

    jax.config.update("jax_default_matmul_precision", None if precision == "default" else precision)


@contextlib.contextmanager
def lent() -> Generator[None]:
    """`DEFAULTS` for all threads of this process; at the end jax is as it was, also in what stages
    set.
    """
    import jax

    before = {name: jax.config.values[name] for name in (*DEFAULTS, *_SET_BY_STAGES)}
    variables = _variables()
    try:
        for name, value in DEFAULTS.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        for name in _variables():
            del os.environ[name]
        os.environ |= variables


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("JAX_")}


@contextlib.contextmanager
def defaults() -> Generator[None]:
    """`DEFAULTS` in this thread; also a decorator of functions, but for generators (`each`)."""
    import jax

    with contextlib.ExitStack() as options:
        for name, value in DEFAULTS.items():
            options.enter_context(getattr(jax, name.removeprefix("jax_"))(value))
        yield


def each(items: Generator[T]) -> Generator[T]:
    """Yields what a generator yields, which computes with `DEFAULTS`, unlike its reader."""
    with contextlib.closing(items):
        while True:
            with defaults():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
