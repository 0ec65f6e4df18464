"""Append-only lines: torn at any byte, they lose the torn line alone."""

from __future__ import annotations

import os
import zlib

import pytest

from motif_jax.core.checked_lines import LineWriter, read_lines
from motif_jax.core.errors import UserError

KEYS = [f"{n:032x}" for n in range(6)]


def write(path, keys):
    with LineWriter(path) as writer:
        for key in keys:
            writer.append([(key, {"label": int(key, 16)})])


def test_round_trip_and_filter(tmp_path):
    path = tmp_path / "folder" / "a.jsonl"
    write(path, KEYS)
    assert list(read_lines(path)) == [(key, {"label": n}) for n, key in enumerate(KEYS)]
    assert list(read_lines(path, {KEYS[3]})) == [(KEYS[3], {"label": 3})]
    assert list(read_lines(tmp_path / "absent.jsonl")) == []
    size = path.stat().st_size // len(KEYS)
    for end, count in {0: 0, 1: 1, size: 1, size + 1: 2, 9 * size: 6}.items():
        assert len(list(read_lines(path, end=end))) == count
    with LineWriter(path) as writer:
        assert writer.length() == 6 * size
        for length, label in ((3 * size - 5, 7), (2 * size, 8)):
            writer.cut(length)
            writer.append([(KEYS[5], {"label": label})], wait=False)
    assert [value["label"] for _, value in read_lines(path)] == [0, 1, 8]
    assert b"\n\n" not in path.read_bytes()


def test_torn_at_every_byte(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path, KEYS[:3])
    content = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content) + 1):
        path.write_bytes(content[:cut])
        # A line that lacks nothing but its end is whole.
        sound = sum(end - 1 <= cut for end in ends)
        assert [value["label"] for _, value in read_lines(path)] == list(range(sound))
        write(path, KEYS[4:])
        labels = [value["label"] for _, value in read_lines(path)]
        assert labels == [*range(sound), 4, 5]


def test_damaged_lines_are_skipped(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path, KEYS)
    data = bytearray(path.read_bytes())
    line = len(data) // len(KEYS)
    data[2 * line + 45] ^= 1
    data[4 * line : 4 * line + 20] = b"\0" * 20
    path.write_bytes(bytes(data))
    assert [value["label"] for _, value in read_lines(path)] == [0, 1, 3, 5]


@pytest.mark.parametrize("text", [b"[" * 100_000, b"[1]"])
def test_a_sound_line_without_an_object_is_skipped(tmp_path, text):
    body = KEYS[0].encode() + b" " + text
    (tmp_path / "a.jsonl").write_bytes(b"%08x %b\n" % (zlib.crc32(body), body))
    write(tmp_path / "a.jsonl", KEYS[1:2])
    assert list(read_lines(tmp_path / "a.jsonl")) == [(KEYS[1], {"label": 1})]


def test_one_writer_a_file(tmp_path):
    with LineWriter(tmp_path / "a"), pytest.raises(BlockingIOError):
        LineWriter(tmp_path / "a")
    LineWriter(tmp_path / "a").close()


def test_full_disk_is_one_line_and_keeps_what_was_written(tmp_path):
    with LineWriter(tmp_path / "b") as writer:
        writer.append([(KEYS[0], {"label": 0})])
    line = f"^{tmp_path}/b cannot be written: No space left on device; everything answered before is kept$"
    refused = pytest.raises(UserError, match=line)
    with open("/dev/full", "wb") as full, LineWriter(tmp_path / "b") as writer, refused:
        os.dup2(full.fileno(), writer.fileno())
        writer.append([(KEYS[1], {"label": 1})])
    assert [value["label"] for _, value in read_lines(tmp_path / "b")] == [0]
