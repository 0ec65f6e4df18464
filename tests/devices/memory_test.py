from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from motif_jax.devices import memory

PROGRAM = """
import resource
import sys
import numpy as np
from motif_jax.devices.memory import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
for run in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(16 << 20, np.float32)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="says something about glibc's heap alone")
def test_blocks_that_were_freed_are_used_again() -> None:
    faults = {}
    for mode in ("default", "keep"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True, timeout=240
        )
        faults[mode] = int(done.stdout)
    # 64 MiB are 16,384 pages (32 of them where pages are huge).
    assert faults["default"] >= 32
    assert faults["keep"] < 32


@pytest.mark.parametrize(
    ("platforms", "plugins", "possible"),
    [("cpu", True, False), ("cuda,cpu", True, True), (None, True, True), ("", False, False)],
)
def test_accelerators_are_known_of_before_jax_starts(
    platforms: str | None, plugins: bool, possible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = object() if plugins else None
    monkeypatch.setattr(memory.importlib.metadata, "entry_points", lambda group: [])
    monkeypatch.setattr(memory.importlib.util, "find_spec", lambda name: found)
    assert memory.accelerator_possible(platforms) == possible


RETURN_PROGRAM = """
import numpy as np
import psutil
from motif_jax.devices.memory import keep_freed_memory, return_freed_memory

assert keep_freed_memory()
block = np.ones(64 << 20, np.float32)
above = np.ones(1 << 20, np.float32)
del block
before = psutil.Process().memory_info().rss
assert return_freed_memory()
print(before - psutil.Process().memory_info().rss)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="says something about glibc's heap alone")
def test_freed_blocks_can_be_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RETURN_PROGRAM], capture_output=True, text=True, check=True, timeout=240
    )
    assert int(done.stdout) > 200 << 20
