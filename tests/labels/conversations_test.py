"""Conversations that are kept: whole ones are read, whatever became of the file's end."""

from __future__ import annotations

import pytest

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


def test_a_torn_or_damaged_end_is_left_out(log):
    data = log.path.read_bytes()
    assert read(log) == [*range(6)]
    second = data.index(b"\x1f\x8b\x08", 1)
    third = data.index(b"\x1f\x8b\x08", second + 1)
    for length in (0, 1, second - 1, second, second + 5, third, len(data) - 1):
        log.path.write_bytes(data[:length])
        sound = 0 if length < second - 1 else 2 if length < third else 3
        assert read(log)[:sound] == [*range(sound)]
        assert len(read(log)) <= 6
    log.path.write_bytes(data[:second] + b"x" * 20 + data[third:])
    assert read(log) == [0, 1]
