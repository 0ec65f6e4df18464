from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import jax
import pytest

from motif_jax.core.devices import compiled_programs
from motif_jax.core.devices.jax_options import set_matmul_precision

REPOSITORY = Path(__file__).parents[2]


class JaxConfig:
    """Stands for `jax.config`, and keeps the updates in order."""

    def __init__(self) -> None:
        self.updates: list[tuple[str, Any]] = []

    def update(self, name: str, value: Any) -> None:
        self.updates.append((name, value))


@pytest.fixture
def jax_config(monkeypatch: pytest.MonkeyPatch) -> JaxConfig:
    config = JaxConfig()
    monkeypatch.setattr(jax, "config", config)
    return config


def test_parts_of_an_entry_are_removed_and_nothing_else(tmp_path: Path) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    program = zlib.compress(os.urandom(3 * page), 0)
    (tmp_path / "empty-cache").write_bytes(b"")
    (tmp_path / "torn-cache").write_bytes(program[: 2 * page])
    (tmp_path / "noise-cache").write_bytes(b"\x78\x9c\xff\xff".ljust(page, b"\xff"))
    files = {"whole-cache": program, "other-cache": b"\x28\xb5\x2f\xfd".ljust(page), "notes": b""}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder-cache").mkdir()
    compiled_programs.remove_torn(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*files, "folder-cache"}


def test_the_folder_of_programs_is_the_environments_or_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(compiled_programs.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert compiled_programs.programs_folder() == Path("/caches/motif_jax/compiled")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert compiled_programs.programs_folder() == Path.home() / ".cache/motif_jax/compiled"
    monkeypatch.setenv(compiled_programs.FOLDER_VARIABLE, "/own")
    assert compiled_programs.programs_folder() == Path("/own")


def test_without_a_home_no_programs_are_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(compiled_programs.FOLDER_VARIABLE, raising=False)

    compiled_programs.keep()

    assert compiled_programs.FOLDER_VARIABLE not in os.environ
    line = "compiled programs are not kept: Could not determine home directory.\n"
    assert capsys.readouterr().err == line


def test_keep_sets_this_process_and_the_environment_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jax_config: JaxConfig
) -> None:
    monkeypatch.setenv(compiled_programs.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.25")
    (tmp_path / "torn-cache").touch()

    compiled_programs.keep()

    assert list(tmp_path.iterdir()) == []
    assert os.environ[compiled_programs.FOLDER_VARIABLE] == str(tmp_path)
    assert dict(jax_config.updates) == {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.25,
    }


@pytest.mark.extra
def test_a_second_start_says_how_much_the_cache_saved(tmp_path: Path) -> None:
    code = """
import sys
from motif_jax.core.devices import compiled_programs
compiled_programs.keep()
assert "jax" not in sys.modules
import jax
reused = compiled_programs.ReusedPrograms()
reused.watch()
jax.jit(lambda x: x @ x + 1)(jax.numpy.ones((8, 8)))
compiled_programs._LEAST_SAVED_SECONDS = -1.0
print(reused.programs, reused.line())
"""
    environment = {
        **os.environ,
        compiled_programs.FOLDER_VARIABLE: str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    lines = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True,
        ).stdout
        for _ in range(2)
    ]  # fmt: skip
    assert lines[0].startswith("0 ")
    count = int(lines[1].split()[0])
    assert count > 0
    assert f"compiled programs that came from {tmp_path}: {count}, " in lines[1]


@pytest.mark.parametrize(("precision", "value"), [("default", None), ("highest", "highest")])
def test_precision_of_products_is_jaxs_own_by_default(
    precision: str, value: str | None, jax_config: JaxConfig
) -> None:
    set_matmul_precision(precision)

    assert jax_config.updates == [("jax_default_matmul_precision", value)]
