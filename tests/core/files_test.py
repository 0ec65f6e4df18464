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

from motif_jax.core import files, locks
from motif_jax.core.checked_lines import LineWriter
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
    ("content", "why"),
    [
        (b" ", "empty"),
        (b"\0\0\0", "no JSON: .*"),
        (b"{", "no JSON: .*"),
        (b"[1]", "a JSON list in place of a dict"),
        (b"[" * 200_000, "nested too deeply"),
        (b"\xff\xfe", "no JSON: .*"),
        (b'{"other": 1}', "it has no step, at"),
    ],
)
def test_damaged_json_is_refused_with_the_remedy(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "plan.json"
    line = rf"^{path} cannot be read \(No such file or directory\): make it again$"
    with pytest.raises(UserError, match=line):
        files.read_json(path, "make it again")
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"^{path} is damaged \({why}\): make it again$"):
        files.read_json(path, "make it again", keys=["step", "at"])
    path.write_text('{"step": 1}')
    assert files.read_json(path, "make it again", keys=["step"]) == {"step": 1}


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


REMEDY = "what was saved before is kept: make room, and the same command continues"


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


def test_a_full_disk_behind_another_error_names_the_free_space(tmp_path: Path, monkeypatch) -> None:
    error = RuntimeError("a thread failed")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    # A circle, as threads that hand errors on can make.
    error.__context__ = error
    usage = shutil.disk_usage(tmp_path)._replace(free=1_234_567)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda folder: usage)

    line = f"{tmp_path}/new cannot be written: No space left on device (1.2 MB are free there); {REMEDY}"
    assert files.system_error(error, tmp_path / "new") == line


@pytest.mark.parametrize("error", [ValueError("x"), PermissionError(errno.EACCES, "no")], ids=repr)
def test_an_error_without_a_file_is_no_system_error(tmp_path: Path, error: Exception) -> None:
    assert files.system_error(error, tmp_path) is None


def test_without_an_error_no_disk_is_full() -> None:
    assert files.full_disk(None) is None


def test_a_forbidden_file_is_named(tmp_path: Path) -> None:
    error = PermissionError(errno.EACCES, "no", "a/b")

    assert files.system_error(error, tmp_path) == "a/b cannot be used: no"


def test_a_too_long_path_is_a_system_error(tmp_path: Path) -> None:
    error = OSError(errno.ENAMETOOLONG, "File name too long")

    line = "a path is longer than this system allows: [Errno 36] File name too long"
    assert files.system_error(error, tmp_path) == line


def test_json_has_null_for_numbers_that_are_not_finite() -> None:
    content = {"a": (1.0, [float("nan")], float("inf")), "b": "x"}

    assert files.finite(content) == {"a": [1.0, [None], None], "b": "x"}


def test_a_text_of_whole_characters_passes() -> None:
    files.require_whole_characters("\U0001f600", "the caption")


def test_half_of_a_character_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"^the caption: half of a character stands in its texts \(surrogates"
    ):
        files.require_whole_characters("a\ud83d", "the caption")


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


# What opens a file to be written, given the file.
WRITERS = {
    "lock": lambda path: locks.FolderLock(path.parent, path.name).__enter__(),
    "shard": LineWriter,
    "array": lambda path: files.new_array(path, np.int8, (1,)),
    "any": lambda path: files.regular_file(str(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", ["link", "dangling", "fifo"])
def test_nothing_is_written_into_what_is_no_file(writer: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "written.npy"
    victim = tmp_path / "victim"
    if kind == "link":
        victim.write_text("kept")
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(victim)
    with pytest.raises(
        UserError, match=r"written\.npy is not a regular file but a link, a FIFO or a device"
    ):
        WRITERS[writer](path)
    expected = ["kept"] if kind == "link" else []
    assert [file.read_text() for file in tmp_path.glob("victim")] == expected


def test_a_file_without_an_array_is_refused_with_its_reason(tmp_path: Path) -> None:
    with open(tmp_path / "many.npy", "wb") as file:
        np.savez(file, np.arange(2))
    (tmp_path / "none.npy").write_bytes(b"x" * 9)
    for name, reason in {
        ".": "not a regular",
        "many.npy": "an archive of",
        "none.npy": "pickle",
    }.items():
        with pytest.raises(ValueError, match=reason):
            files.load_array(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        files.load_array(tmp_path / "absent.npy")
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\): make it again"):
        files.read_json(tmp_path, "make it again")


def test_deeply_nested_lines_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"[" * 100_000 + b"\n")
    with pytest.raises(UserError, match=r"rows\.jsonl is damaged in line 1 \(RecursionError"):
        files.append_lines(path, keep=lambda line: bool(json.loads(line)))


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
