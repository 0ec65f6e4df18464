"""Counts the messages of games, and sums the rewards of each."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from motif_jax.core import text_bytes

# A backslash that looks like the start of an escape is escaped, too.
_LIKE_ESCAPE = re.compile(r"\\(?=x[0-9a-f]{2}|u[0-9a-f]{4}|U00(?:0[0-9a-f]|10)[0-9a-f]{4})")
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U(00(?:0[0-9a-f]|10)[0-9a-f]{4}))")


def as_text(message: np.ndarray | bytes) -> str:
    """A NUL-padded message as text; what is not printable, and bytes that are not UTF-8, are
    escaped.
    """
    raw = (message.tobytes() if isinstance(message, np.ndarray) else message).rstrip(b"\0")
    text = _LIKE_ESCAPE.sub(r"\\x5c", text_bytes.decode(raw))
    # Other bytes are read as latin-1: such a letter is escaped by its byte.
    shows_utf8 = text_bytes.is_utf8(raw)
    return "".join(
        letter if letter.isprintable() and (letter.isascii() or shows_utf8) else escaped(letter)
        for letter in text
    )


def escaped(letter: str) -> str:
    r"""The escape of a letter by its code: \xNN, \uNNNN or \UNNNNNNNN."""
    code = ord(letter)
    if code < 1 << 8:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def message_of(text: str) -> str:
    """The inverse of `as_text`: the message without zero bytes, as in labels
    (`captions.decode_message`).
    """
    letters = _ESCAPE.sub(lambda match: chr(int(match[1] or match[2] or match[3], 16)), text)
    return letters.replace("\0", "")


@dataclass
class MessageTally:
    """One distinct message over a set of episodes: how many steps (`count`) and episodes show it.

    `reward` is the text's own when first seen in an episode: g(m) of an evaluation, the normalised
    value of `visualize`. `total` is the sum after the count discount. None without a reward.
    """

    text: str
    count: int
    episodes: int = 1
    reward: float | None = None
    total: float | None = None


def tally_episode(
    texts: np.ndarray,
    text_index: np.ndarray,
    uncounted: np.ndarray | None = None,
    discounted: np.ndarray | None = None,
) -> list[MessageTally]:
    """Counts the messages of one episode: distinct `texts` uint8 [D, L], and the index int [T] of
    each step's.

    `uncounted`, float [T], is each step's `MessageTally.reward`, and `discounted` what it was paid
    after the count discount.
    """
    counts = np.bincount(text_index, minlength=len(texts)).tolist()
    tallies = {
        row: MessageTally(as_text(texts[row]), count) for row, count in enumerate(counts) if count
    }
    if uncounted is not None and discounted is not None:
        # Reversed, so that the first step with a message is the one that stays.
        firsts = dict(zip(text_index[::-1].tolist(), uncounted[::-1].tolist(), strict=True))
        totals = np.bincount(text_index, discounted, minlength=len(texts)).tolist()
        for row, tally in tallies.items():
            tally.reward = firsts[row]
            tally.total = totals[row]
    return list(tallies.values())


def merge(episodes: Iterable[Sequence[MessageTally]]) -> list[MessageTally]:
    """Adds the tallies of several episodes; sorted by descending count, then by text."""
    merged: dict[str, MessageTally] = {}
    for tallies in episodes:
        for tally in tallies:
            total = merged.get(tally.text)
            if total is None:
                merged[tally.text] = replace(tally)
                continue
            total.count += tally.count
            total.episodes += tally.episodes
            if total.total is not None and tally.total is not None:
                total.total += tally.total
    return sorted(merged.values(), key=lambda tally: (-tally.count, tally.text))


def pack(tallies: Sequence[MessageTally]) -> str:
    """Packs the tallies of one episode into a short string for a journal."""
    rows = [[t.text, t.count, t.reward, t.total] for t in tallies]
    return base64.b85encode(zlib.compress(json.dumps(rows).encode(), 9)).decode()


def unpack(text: str) -> list[MessageTally]:
    """The inverse of `pack`."""
    rows = json.loads(zlib.decompress(base64.b85decode(text)))
    return [MessageTally(row[0], row[1], 1, row[2], row[3]) for row in rows]
