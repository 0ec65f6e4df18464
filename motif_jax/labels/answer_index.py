"""An index of the answer store for repeated look-ups while others append.

An `AnswerStore` reads every file for each list of questions. This reads each line once, when it is written, and holds a few
numbers of it: about 150 bytes an answer, whatever the store holds.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from motif_jax.datasets.verdicts import UNKNOWN
from motif_jax.labels.store import StoredAnswer, better
from motif_jax.support.checked_lines import decode_line

_BLOCK = 1 << 20
_LONGEST_LINE = 1 << 12
# An entry is file << 49 | offset << 1 | whether the label is known.
_OFFSET_BITS = 48


class AnswerIndex:
    """The answers in a store's folder, those included that any process appends later; for one thread."""

    def __init__(self, folder: str | Path, refresh_seconds: float = 0.2) -> None:
        """`refresh_seconds`: how old the view of the folder may be when something is looked up."""
        self._folder = Path(folder)
        self._refresh_seconds = refresh_seconds
        self._refreshed = -float("inf")
        self._files: list[_File] = []
        self._by_name: dict[str, _File] = {}
        self._entries: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> StoredAnswer | None:
        """The answer to the question of id `key`, None if there is none."""
        if time.monotonic() - self._refreshed >= self._refresh_seconds:
            self.refresh()
        entry = self._entries.get(_short(key))
        return None if entry is None else self._read(entry, key)

    def refresh(self) -> None:
        """Reads what has been appended since the last time."""
        try:
            names = sorted(entry.name for entry in os.scandir(self._folder) if entry.name.endswith(".jsonl"))
        except FileNotFoundError:
            names = []
        for name in names:
            if name not in self._by_name:
                file = self._by_name[name] = _File(self._folder / name, len(self._files))
                self._files.append(file)
            self._follow(self._by_name[name])
        self._refreshed = time.monotonic()

    def close(self) -> None:
        """Closes the files."""
        for file in self._files:
            os.close(file.descriptor)
        self._files, self._by_name, self._entries = [], {}, {}

    def _follow(self, file: _File) -> None:
        while data := os.pread(file.descriptor, _BLOCK, file.read):
            whole = data.rfind(b"\n") + 1
            if not whole:  # the end of a line is still to come, or it is none of ours
                if len(data) < _BLOCK:
                    return
                whole = len(data)
            start = 0
            while start < whole:
                end = data.find(b"\n", start, whole) + 1 or whole
                self._take(file, file.read + start, data[start:end])
                start = end
            file.read += whole

    def _take(self, file: _File, offset: int, line: bytes) -> None:
        record = decode_line(line)
        answer = None if record is None else StoredAnswer.from_json(record[1])
        if record is None or answer is None:
            return
        key = record[0]
        known = answer.label != UNKNOWN
        old = self._entries.get(_short(key))
        if old is not None and (
            old & 1 or (not known and better(self._read(old, key), answer) is not answer)
        ):
            return
        self._entries[_short(key)] = (file.number << _OFFSET_BITS | offset) << 1 | known

    def _read(self, entry: int, key: str) -> StoredAnswer | None:
        file, offset = divmod(entry >> 1, 1 << _OFFSET_BITS)
        line = os.pread(self._files[file].descriptor, _LONGEST_LINE, offset).partition(b"\n")[0]
        record = decode_line(line)
        if record is None or record[0] != key:  # the file was changed, or two ids begin alike
            return None
        return StoredAnswer.from_json(record[1])


class _File:
    """A file of the store.

    Attributes:
      number: its place in the index.
      descriptor: it is open for as long as the index.
      read: bytes that are in the index.
    """

    def __init__(self, path: Path, number: int) -> None:
        self.number = number
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.read = 0


def _short(key: str) -> int:
    """The first 64 bits of an id; the whole id stands in the line."""
    return int(key[:16], 16)
