"""Conversations that are kept: whole ones are read, whatever became of the file's end, a piece at a time."""

from __future__ import annotations

import zlib

import pytest

from motif_jax.labels import conversations
from motif_jax.labels.annotator import Answer, Question
from motif_jax.labels.conversations import ConversationLog, read_conversations


@pytest.fixture
def log(tmp_path):
    """A log of two, one and three conversations; the ids are their numbers."""
    log, number = ConversationLog(tmp_path, "a"), 0
    for count in (2, 1, 3):
        entries = [(Question(str(number + place), ("a", "b")), Answer(0)) for place in range(count)]
        log.add(entries)
        number += count
    return log


def read(log):
    return [int(talk["id"]) for talk in read_conversations(log.path)]


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 14])
def test_a_torn_or_damaged_member_ends_it_wherever_blocks_do(log, monkeypatch, block):
    monkeypatch.setattr(conversations, "_BLOCK", block)
    data = log.path.read_bytes()
    assert read(log) == [*range(6)]
    second = data.index(b"\x1f\x8b\x08", 1)
    third = data.index(b"\x1f\x8b\x08", second + 1)
    for length in (0, 1, second - 1, second, second + 5, third, len(data) - 1):
        log.path.write_bytes(data[:length])
        assert read(log) == [*range(0 if length < second else 2 if length < third else 3)]
    # In its place zeros, nothing, and one that ends where the next begins.
    for damaged in (bytes(20), b"", data[second : third - 8]):
        log.path.write_bytes(data[:second] + damaged + data[third:])
        assert read(log) == ([0, 1] if damaged else [0, 1, 3, 4, 5])


def test_a_long_file_is_read_in_pieces(tmp_path, monkeypatch):
    log = ConversationLog(tmp_path, "a")
    for number in range(200):
        log.add([(Question(str(number), ("a", "b")), Answer(0))])
    given = []
    make = zlib.decompressobj

    class Watched:
        def __init__(self, wbits):
            self._inner = make(wbits=wbits)

        def decompress(self, data):
            given.append(len(data))
            return self._inner.decompress(data)

        def __getattr__(self, name):
            return getattr(self._inner, name)

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    monkeypatch.setattr(conversations, "_BLOCK", 1024)
    assert read(log) == [*range(200)]
    # A file's length for each of its members is what it took.
    assert max(given) <= 1024
    assert len(given) <= 200 + log.path.stat().st_size // 1024 + 1
