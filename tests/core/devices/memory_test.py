from __future__ import annotations

import platform
import subprocess
import sys
from typing import Any
from unittest.mock import Mock, call

import pytest

from motif_jax.core.devices import memory

PROGRAM = """
import resource, sys
import numpy as np
import psutil
from motif_jax.core.devices.memory import keep_freed_memory, return_freed_memory

assert sys.argv[1] == "default" or keep_freed_memory()
for run in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(64 << 20, np.float32)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
block, above = np.ones(64 << 20, np.float32), np.ones(1 << 20, np.float32)
del block
before = psutil.Process().memory_info().rss
assert return_freed_memory()
print(faults, before - psutil.Process().memory_info().rss)
"""


@pytest.mark.extra
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="says something about glibc's heap alone"
)
def test_blocks_that_were_freed_are_used_again_or_given_back() -> None:
    faults = {}
    returned = {}
    for mode in ("default", "keep"):
        printed = subprocess.check_output(
            [sys.executable, "-c", PROGRAM, mode], text=True, timeout=240
        )
        faults[mode], returned[mode] = map(int, printed.split())
    # 256 MiB are 65,536 pages (128 of them where pages are huge).
    assert faults["default"] >= 128
    assert faults["keep"] < 32
    assert returned["keep"] > 200 << 20


@pytest.mark.parametrize(
    ("platforms", "plugins", "named", "possible"),
    [
        ("cpu", "libtpu", [1], False),
        ("cuda,cpu", "", [], True),
        (None, "libtpu", [], True),
        (None, "jax_plugins", [], True),
        ("", "", [], False),
        ("", "", [1], True),
    ],
)
def test_accelerators(
    platforms: Any, plugins: str, named: Any, possible: bool, monkeypatch: Any
) -> None:
    listed = {"jax_plugins": named}
    monkeypatch.setattr(
        memory.importlib.metadata, "entry_points", lambda group: listed.get(group, [])
    )
    monkeypatch.setattr(memory.importlib.util, "find_spec", lambda name: name == plugins or None)
    assert memory.accelerator_possible(platforms) is possible


def test_the_heap_is_set_to_return_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Mock()
    calls = [call.mallopt(-4, 0), call.mallopt(-1, 2**31 - 1), call.mallopt(-8, 1)]
    monkeypatch.setattr(memory.ctypes, "CDLL", {None: library}.get)
    for name, answers, works in (
        ("glibc", (1, 1), True),
        ("glibc", (1, 0), False),
        ("musl", (1, 1), False),
    ):
        monkeypatch.setattr(memory.platform, "libc_ver", lambda name=name: (name, "2"))
        library.mallopt.side_effect = (1, *answers)
        library.malloc_trim.return_value = answers[-1]
        assert (memory.keep_freed_memory(), memory.return_freed_memory()) == (works, works)
    assert library.mock_calls == [*calls, call.malloc_trim(0)] * 2
