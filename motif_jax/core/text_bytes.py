"""Texts as bytes: UTF-8, as environments show captions, reward networks read them, and pages print
them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_CONTINUATION = 0b1000_0000  # the first two bits of a byte that continues a character of UTF-8
_FIRST_TWO_BITS = 0b1100_0000


def encode(text: str) -> bytes:
    """`text` in UTF-8. Pairs of surrogates, which JSON may hold, are joined; a half of one becomes
    U+FFFD.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def is_utf8(data: bytes) -> bool:
    """Whether `data` are whole characters of UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode(data: bytes) -> str:
    """The text in `data`: UTF-8, and latin-1 where it is none, as a NetHack message with letters of
    an older terminal.
    """
    return data.decode("utf-8" if is_utf8(data) else "latin-1")


def cut(data: bytes, size: int) -> bytes:
    """The first characters of `data` that fit into `size` bytes; of bytes that are not UTF-8 at
    most three fewer than `size`.
    """
    if len(data) <= size:
        return data
    end = size
    # A character has at most three bytes after its first.
    while end > max(0, size - 3) and data[end] & _FIRST_TWO_BITS == _CONTINUATION:
        end -= 1
    is_inside = data[end] & _FIRST_TWO_BITS == _CONTINUATION
    # Four continuations in a row are no UTF-8: there any place will do.
    return data[:size] if is_inside else data[:end]


def padded(data: bytes, size: int) -> np.ndarray:
    """`data` cut to the characters that fit into `size` bytes, padded with zeros: uint8 [size]."""
    return np.frombuffer(cut(data, size).ljust(size, b"\0"), np.uint8)


def padded_rows(texts: Sequence[str], width: int) -> np.ndarray:
    """`texts` in UTF-8 as uint8 [N, width], padded with zeros; of a longer one what fits.

    Texts of a task have at most 256 bytes, but letters that were no UTF-8 there become longer.
    """
    rows = np.zeros((len(texts), width), np.uint8)
    for row, text in zip(rows, texts, strict=True):
        data = cut(encode(text), width)
        row[: len(data)] = np.frombuffer(data, np.uint8)
    return rows
