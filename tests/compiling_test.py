from __future__ import annotations

import os
import subprocess
import sys

import jax
import pytest

from tests.compiling import compiler_knows


def test_an_option_is_known_by_its_whole_name() -> None:
    assert compiler_knows("xla_cpu_enable_fast_math")
    assert not compiler_knows("xla_cpu_enable_fast_mat")
    assert not compiler_knows("xla_cpu_use_xla_runtime")  # withdrawn


def test_jax_was_imported_after_its_options_were_set() -> None:
    quick = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS", "0") != "0"
    assert jax.config.values["jax_disable_most_optimizations"] == quick
    assert jax.jit(lambda x: x * 3)(2) == 6


@pytest.mark.slow
def test_a_process_with_these_options_starts() -> None:
    code = "import jax; print(jax.jit(lambda x: x * 3)(2))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "6\n"
