"""Files survive a writer that dies."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from motif_jax.core import files
from motif_jax.core.errors import UserError
from tests.processes import wait_until

WRITER = """
import sys
from motif_jax.core.files import atomic_write_bytes
n = 0
while True:
    n += 1
    atomic_write_bytes(sys.argv[1], bytes([n % 256]) * 300_000)
"""


def test_a_killed_writer_leaves_an_intact_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = None

    def written() -> bool:
        return path.exists() and path.stat().st_mtime_ns != before

    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) as writer:
            try:
                # It is at work when there is another file than its predecessor left.
                wait_until(written, "a write", interval=0.01)
                time.sleep(0.05)
            finally:
                writer.send_signal(signal.SIGKILL)
        before = path.stat().st_mtime_ns
        content = path.read_bytes()
        assert content == content[:1] * 300_000
    files.remove_temporaries(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_file_has_the_rights_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.atomic_write_bytes(tmp_path / "kept", b"1")
    finally:
        os.umask(before)
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o640


def test_a_failing_writer_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.atomic_write_json(path, {"b": 1})
    with pytest.raises(TypeError):
        files.atomic_write_json(path, {"b": object()})
    files.atomic_save_npy(tmp_path / "a.npy", np.arange(3))
    with files.replaced_folder(tmp_path / "f") as part:
        (part / "old").touch()
    with files.replaced_folder(tmp_path / "f") as part:
        (part / "new").touch()
        assert os.listdir(tmp_path / "f") == ["old"]
    with pytest.raises(KeyError), files.replaced_folder(tmp_path / "f"):
        raise KeyError
    assert (os.listdir(tmp_path / "f"), os.listdir(tmp_path / "f.part")) == (["new"], [])
    assert (path.read_text(), np.load(tmp_path / "a.npy").tolist()) == (
        '{\n  "b": 1\n}\n',
        [0, 1, 2],
    )
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.npy", "f", "f.part"]


def test_what_a_kill_left_of_a_replaced_folder_is_removed(tmp_path: Path, monkeypatch) -> None:
    def write() -> None:
        with files.replaced_folder(tmp_path / "f") as part:
            (part / "file").touch()

    write()
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda path, ignore_errors: None)  # the killed removal
        write()
    assert sorted(os.listdir(tmp_path)) == ["f", "f.replaced"]

    with files.replaced_folder(tmp_path / "f"):
        assert sorted(os.listdir(tmp_path)) == ["f", "f.part"]


def test_a_folder_is_restored_after_a_kill_between_two_moves(tmp_path: Path, monkeypatch) -> None:
    moves = []
    replace = os.replace

    def killed_at_the_second(source: Path, target: Path) -> None:
        moves.append(source)
        if len(moves) == 2:
            raise KeyboardInterrupt
        replace(source, target)

    def write(name: str) -> None:
        with files.replaced_folder(tmp_path / "f") as part:
            (part / name).touch()
            assert not (tmp_path / "f").exists() or os.listdir(tmp_path / "f") == ["old"]

    write("old")
    monkeypatch.setattr(os, "replace", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        write("new")
    assert not (tmp_path / "f").exists()

    write("new")

    assert os.listdir(tmp_path) == ["f"]
    assert os.listdir(tmp_path / "f") == ["new"]


@pytest.mark.parametrize(
    "line", [b"", b"\0\0", b'{"ste": 3}', b'{"step": true}', b"[3]", b"\xff"], ids=repr
)
def test_a_damaged_line_is_named_and_a_torn_end_ignored(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    assert not list(files.read_json_lines(path))
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    assert [row["step"] for row in files.read_json_lines(path, ["step"])] == [1, 2]
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 2}\n')
    remedy = r"take out that line \(its content is lost\), or restore a copy of the file"
    with pytest.raises(UserError, match=rf"^{path} is damaged in line 2 \(.*\): {remedy}$"):
        list(files.read_json_lines(path, ["step"]))


LIMITED = """
import resource, sys
from motif_jax.core import files
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    files.atomic_write_bytes(sys.argv[1], b"x" * 2000)
except OSError as error:
    print(files.system_error(error, "."))
"""


def test_a_file_that_finds_no_room_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    command = [sys.executable, "-c", LIMITED, str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert printed.startswith(
        f"{path} cannot be written: File too large; what was saved before is kept: make"
    )
    assert os.listdir(tmp_path) == ["a"]
    assert path.read_text() == "old"


def test_json_has_null_for_numbers_that_are_not_finite() -> None:
    content = {"a": (1.0, [float("nan")], float("inf")), "b": "x"}

    assert files.finite(content) == {"a": [1.0, [None], None], "b": "x"}


def test_a_new_array_has_its_room_before_it_is_written(tmp_path: Path, monkeypatch) -> None:
    array = files.new_array(tmp_path / "a.npy", np.int16, (3, 5))
    array[1] = 7
    array.flush()
    for mapped in (False, True):
        loaded = files.load_array(tmp_path / "a.npy", mapped)
        assert loaded.tolist() == [[0] * 5, [7] * 5, [0] * 5]
        assert (loaded.dtype, isinstance(loaded, np.memmap)) == (np.int16, mapped)
    asked: list[tuple[int, int]] = []

    def full(_: int, *asked_for: int) -> None:
        asked.append(asked_for)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"device, 5\.0 MB are needed for it") as error:
        files.new_array(tmp_path / "b.npy", np.int8, (5_000_000,))
    assert (error.value.filename, asked) == (str(tmp_path / "b.npy"), [(0, 5_000_128)])


def test_a_damaged_line_prevents_writing_a_file_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"1\n\xff\n3\n")
    with pytest.raises(
        UserError, match=r"rows\.jsonl is damaged in line 2 \(UnicodeDecodeError: .*take out"
    ):
        files.append_lines(path, keep=lambda line: True)
    assert path.read_bytes() == b"1\n\xff\n3\n"
    path.write_bytes(b"1\n2\n3\ntorn")
    with files.append_lines(path, keep=lambda line: line != "2") as file:
        file.write("4\n")
    assert path.read_text() == "1\n3\n4\n"


def test_json_has_null_for_what_is_no_number(tmp_path):
    values = {"return": float("inf"), "mean": [float("nan"), -float("inf"), 1.5]}
    expected = {"return": None, "mean": [None, None, 1.5]}
    files.atomic_write_json(tmp_path / "a.json", values)
    assert json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail) == expected
    assert json.loads(files.json_line(values), parse_constant=pytest.fail) == expected
