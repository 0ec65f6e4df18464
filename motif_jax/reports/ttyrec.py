"""Films as ttyrec3 files, which NLE's own players open (nle-ttyplay2, nle-read-tty) and its dataset code converts.

A ttyrec is a sequence of records: little-endian seconds, microseconds, length (int32 each), channel (uint8), data.
Channel 0 holds terminal output, 1 the key pressed, 2 the game's score (int32). Version 3 has all three; the file is
compressed with bzip2.
"""

from __future__ import annotations

import bz2
import struct
from typing import Any

import numpy as np

from motif_jax.rollouts.watching import Film

SUFFIX = ".ttyrec3.bz2"
_OUTPUT, _INPUT, _SCORE = 0, 1, 2
_BLANK = (32, 0)


def _style(color: int) -> bytes:
    """The escape sequence of a colour number: bit 3 is bold, bit 4 reverse video; 7 and 0 are the terminal's own."""
    reverse = b";7" if color & 16 else b""
    return b"\x1b[%d;3%d%sm" % (bool(color & 8), color & 7, reverse)


def _draw(chars: np.ndarray, colors: np.ndarray, before: tuple[np.ndarray, np.ndarray] | None) -> bytes:
    parts = [b"\x1b[0m\x1b[2J"] if before is None else []
    # A cleared cell is a blank of colour 0.
    old: tuple[Any, Any] = before or _BLANK
    changed = (chars != old[0]) | (colors != old[1])
    for row, (start, stop) in _runs(changed, colors):
        text = bytes(c if c >= 32 else 32 for c in chars[row, start:stop].tolist())
        place, style = b"\x1b[%d;%dH" % (row + 1, start + 1), _style(int(colors[row, start]))
        parts.append(place + style + text + b"\x1b[0m")
    return b"".join(parts)


def _runs(changed: np.ndarray, colors: np.ndarray) -> list[tuple[int, tuple[int, int]]]:
    """(row, (start, stop)) of neighbouring changed cells of one colour."""
    runs = []
    for row in np.flatnonzero(changed.any(1)):
        columns = np.flatnonzero(changed[row])
        breaks = np.flatnonzero((np.diff(columns) != 1) | (np.diff(colors[row, columns]) != 0)) + 1
        for part in np.split(columns, breaks):
            runs.append((int(row), (int(part[0]), int(part[-1]) + 1)))
    return runs


def _record(time: float, channel: int, data: bytes) -> bytes:
    seconds, micros = divmod(round(time * 1e6), 1_000_000)
    return struct.pack("<iiiB", seconds, micros, len(data), channel) + data


def encode(film: Film, steps_per_second: float = 10.0) -> bytes:
    """A film with a screen as the bytes of a ttyrec3.bz2 file, for players at `steps_per_second`."""
    scores = film.vitals.get("score", np.zeros(len(film), np.int64))
    parts, before = [], None
    for row in range(len(film)):
        time = row / steps_per_second
        screen = (film.chars[row], film.colors[row])
        hero = film.cursor[row]
        place = b"\x1b[%d;%dH" % (hero[0] + 1, hero[1] + 1) if hero[0] >= 0 else b""
        parts.append(_record(time, _OUTPUT, _draw(*screen, before) + place))
        parts.append(_record(time, _SCORE, struct.pack("<i", int(scores[row]))))
        if row < len(film.actions):
            parts.append(_record(time, _INPUT, bytes([film.action_keys[film.actions[row]]])))
        before = screen
    return bz2.compress(b"".join(parts))
