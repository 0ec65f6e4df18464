"""Tiny models take longer to compile than to run: the compiler's best is left out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

# Of two emitters of the CPU's code the older takes half of the newer's time where neither optimises.
_EMITTERS = "xla_cpu_use_fusion_emitters"

# The environment of a program that compiles as `quickly` does.
QUICKLY = {
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --{_EMITTERS}=false".strip(),
}


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Compiles quickly what is compiled in the block, and leaves jax's settings as they were."""
    import jax
    from jax._src import compiler

    names = (
        "jax_disable_most_optimizations jax_compilation_cache_dir jax_persistent_cache_min_compile_time_secs"
    ).split()
    before = {name: jax.config.values[name] for name in names}
    made = compiler.get_compile_options

    # XLA's flags are read once by a process; only here can they be told for a part of it.
    def options(*given: Any, **named: Any) -> Any:
        chosen = made(*given, **named)
        chosen.env_option_overrides = [*chosen.env_option_overrides, (_EMITTERS, False)]
        return chosen

    jax.config.update(names[0], True)
    compiler.get_compile_options = options
    try:
        yield
    finally:
        compiler.get_compile_options = made
        for name, value in before.items():
            jax.config.update(name, value)
