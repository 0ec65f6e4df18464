"""Divides messages into sentences. A game joins what happened in a step to one message: "You hit
the newt.  You see here a key.".
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

# After a full stop, and any quotation mark, before what begins a sentence. "[abc or ?*]" goes on.
# The marks and blanks are ASCII, so that they stand in bytes of UTF-8 and of latin-1 alike.
_BOUNDARY = re.compile(rb"(?<=[.!?])\s+(?=[\"'A-Z])|(?<=[.!?][\"'])\s+(?=[\"'A-Z])")


class SentenceRows(NamedTuple):
    """The sentences of N messages.

    Attributes:
      sentences: uint8 [M, L], each distinct one once, zero-padded.
      of_message: N tuples of indices into `sentences`, in the message's order. An empty message is
          one empty sentence.
    """

    sentences: np.ndarray
    of_message: list[tuple[int, ...]]


def split_rows(messages: np.ndarray) -> SentenceRows:
    """Divides messages uint8 [N, L], zero-padded."""
    index: dict[bytes, int] = {}
    of_message = []
    for row in messages:
        sentences = split_bytes(row.tobytes().rstrip(b"\0"))
        of_message.append(tuple(index.setdefault(sentence, len(index)) for sentence in sentences))
    width = messages.shape[1]
    joined = b"".join(sentence.ljust(width, b"\0") for sentence in index)
    return SentenceRows(np.frombuffer(joined, np.uint8).reshape(-1, width), of_message)


def split_bytes(message: bytes) -> list[bytes]:
    """The sentences of a message in order, without the blanks between them, at least one: an empty
    message is one. A message of one sentence keeps its blanks.
    """
    sentences = [sentence for sentence in _BOUNDARY.split(message.strip()) if sentence]
    return sentences if len(sentences) > 1 else [message]
