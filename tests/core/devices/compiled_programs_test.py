from __future__ import annotations

import os
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from motif_jax.core.devices import compiled_programs
from motif_jax.core.devices.precision import set_matmul_precision


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


def test_a_process_keeps_programs_and_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, cache in ((tmp_path, tmp_path), ("", Path.home() / ".cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", str(variable))
        assert compiled_programs.folder_of("auto") == cache / "motif_jax" / "compiled"
    assert (compiled_programs.folder_of(""), compiled_programs.folder_of("there")) == (None, Path("there"))
    told: list[Any] = []
    monkeypatch.setattr(jax, "config", SimpleNamespace(update=lambda *said: told.append(said)))
    (tmp_path / "torn-cache").touch()
    compiled_programs.keep_in(tmp_path)
    assert list(tmp_path.iterdir()) == []
    set_matmul_precision("default")
    set_matmul_precision("highest")
    assert told == [
        ("jax_compilation_cache_dir", str(tmp_path)),
        ("jax_persistent_cache_min_compile_time_secs", 0.5),
        ("jax_default_matmul_precision", None),
        ("jax_default_matmul_precision", "highest"),
    ]
