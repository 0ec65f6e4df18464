from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from motif_jax.devices import memory

PROGRAM = """
import resource, sys
import numpy as np
import psutil
from motif_jax.devices.memory import keep_freed_memory, return_freed_memory

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="says something about glibc's heap alone")
def test_blocks_that_were_freed_are_used_again_or_given_back() -> None:
    faults, returned = {}, {}
    for mode in ("default", "keep"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True, timeout=240
        )
        faults[mode], returned[mode] = map(int, done.stdout.split())
    # 256 MiB are 65,536 pages (128 of them where pages are huge).
    assert faults["default"] >= 128
    assert faults["keep"] < 32
    assert returned["keep"] > 200 << 20


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
