"""Programs that are kept on disk: torn ones go, whole ones are found."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from motif_jax.devices import compiled_programs
from tests.processes import REPOSITORY

PROGRAM = """
import sys
from pathlib import Path
import jax
from jax import monitoring
from motif_jax.devices import compiled_programs
found = []
monitoring.register_event_listener(lambda event, **_: found.append(event))
compiled_programs.keep_in(Path(sys.argv[1]))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.jit(lambda x: x * 3 + 1)(2.0).block_until_ready()
print(found.count("/jax/compilation_cache/cache_hits"), found.count("/jax/compilation_cache/cache_misses"))
"""


def compute(folder: Path) -> tuple[int, int, str]:
    """Programs that a fresh process finds and compiles, and what it says besides."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    hits, misses = map(int, done.stdout.split())
    return hits, misses, done.stderr


@pytest.mark.slow
def test_a_torn_program_is_compiled_once_more_and_then_found_again(tmp_path: Path) -> None:
    hits, compiled, _ = compute(tmp_path)
    assert not hits
    assert compiled
    for path in tmp_path.glob("*-cache"):
        path.write_bytes(b"")
    assert compute(tmp_path) == (0, compiled, "")
    assert compute(tmp_path) == (compiled, 0, "")


def test_parts_of_an_entry_are_removed_and_nothing_else(tmp_path: Path) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    whole = zlib.compress(os.urandom(3 * page), 0)
    (tmp_path / "empty-cache").write_bytes(b"")
    (tmp_path / "torn-cache").write_bytes(whole[: 2 * page])
    (tmp_path / "noise-cache").write_bytes(b"\x78\x9c\xff\xff".ljust(page, b"\xff"))
    kept = {"whole-cache": whole, "other-cache": b"\x28\xb5\x2f\xfd".ljust(page), "notes": b""}
    for name, content in kept.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder-cache").mkdir()
    compiled_programs.remove_torn(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "folder-cache"}


def test_auto_is_in_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiled_programs.folder_of("auto") == tmp_path / "motif_jax" / "compiled"
    assert compiled_programs.folder_of("") is None
