from __future__ import annotations

import os
import subprocess
import sys

import jax
import pytest

from tests.compiling import QUICKLY, compiler_knows, quickly


def test_an_option_is_known_by_its_whole_name() -> None:
    assert compiler_knows("xla_cpu_enable_fast_math")
    assert not compiler_knows("xla_cpu_enable_fast_mat")
    assert not compiler_knows("xla_cpu_use_xla_runtime")  # withdrawn


def test_a_program_is_compiled_quickly_in_this_process() -> None:
    with quickly():
        assert jax.jit(lambda x: x * 3)(2) == 6


@pytest.mark.slow
def test_a_process_with_these_options_starts() -> None:
    code = "import jax; print(jax.jit(lambda x: x * 3)(2))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **QUICKLY},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "6\n"
