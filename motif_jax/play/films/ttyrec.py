"""Films as ttyrec3 files, which NLE's own players open (nle-ttyplay2, nle-read-tty) and its dataset
code converts.

A ttyrec is a sequence of records: little-endian seconds, microseconds, length (int32 each), channel
(uint8), data. Channel 0 holds terminal output, 1 the key pressed, 2 the game's score (int32).
Version 3 has all three; the file is compressed with bzip2.
"""

from __future__ import annotations

import bz2
import itertools
import operator
import struct

import numpy as np

from motif_jax.play.watching import Film

SUFFIX = ".ttyrec3.bz2"
# Channels.
_OUTPUT = 0
_INPUT = 1
_SCORE = 2


def _style(color: int) -> bytes:
    """The escape sequence of a colour number: bit 3 is bold, bit 4 reverse video; 7 and 0 are the
    terminal's own.
    """
    reverse = b";7" if color & 16 else b""
    return b"\x1b[%d;3%d%sm" % (bool(color & 8), color & 7, reverse)


def _draw(
    chars: np.ndarray, colors: np.ndarray, previous: tuple[np.ndarray, np.ndarray] | None
) -> bytes:
    """The output that draws the rows which differ from the screen `previous`; all rows without
    one.
    """
    parts = []
    if previous is None:
        parts.append(b"\x1b[0m\x1b[2J")
        changed = np.ones(chars.shape, bool)
    else:
        changed = (chars != previous[0]) | (colors != previous[1])
    for row in np.flatnonzero(changed.any(1)).tolist():
        # To the row's first column; the rest of the row is erased and drawn whole.
        parts.append(b"\x1b[%d;1H\x1b[K" % (row + 1))
        # A last row that was written to its end would scroll the screen.
        inked = np.flatnonzero((chars[row] > 32) | (colors[row] & 16 > 0))
        width = int(inked[-1]) + 1 if len(inked) else 1
        cells = zip(colors[row, :width].tolist(), chars[row, :width].tolist(), strict=True)
        for color, run in itertools.groupby(cells, operator.itemgetter(0)):
            parts.append(_style(color) + bytes(max(character, 32) for _, character in run))
        parts.append(b"\x1b[0m")
    return b"".join(parts)


def _record(time: float, channel: int, data: bytes) -> bytes:
    seconds, micros = divmod(round(time * 1e6), 1_000_000)
    return struct.pack("<iiiB", seconds, micros, len(data), channel) + data


def encode(film: Film, steps_per_second: float = 10.0) -> bytes:
    """A film with a screen as the bytes of a ttyrec3.bz2 file, for players at
    `steps_per_second`.
    """
    scores = film.vitals.get("score", np.zeros(len(film), np.int64))
    parts = []
    previous = None
    for step in range(len(film)):
        time = step / steps_per_second
        screen = (film.chars[step], film.colors[step])
        row, column = film.cursor[step]
        move_cursor = b"\x1b[%d;%dH" % (row + 1, column + 1) if row >= 0 else b""
        parts.append(_record(time, _OUTPUT, _draw(*screen, previous) + move_cursor))
        parts.append(_record(time, _SCORE, struct.pack("<i", int(scores[step]))))
        if step < len(film.actions):
            key = film.action_keys[film.actions[step]]
            parts.append(_record(time, _INPUT, bytes([key])))
        previous = screen
    return bz2.compress(b"".join(parts))
