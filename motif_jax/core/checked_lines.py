"""Append-only files of checksummed lines, which survive a kill at any byte.

A line is `CRC32 KEY JSON`: eight hex digits over the rest, a key of 32 hex digits, and one JSON
object. A torn line fails its checksum and is skipped; the next writer begins on a line of its own.
One process writes a file, any number read it meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json, regular_file
from motif_jax.core.locks import lock

# Of a line: bytes 0 to 7 are the checksum, 9 to 40 the key, from 42 on the object; blanks between.
_KEY = slice(9, 41)
_encode = json.JSONEncoder(separators=(",", ":")).encode


def encode_line(key: str, value: dict[str, Any]) -> bytes:
    """One line, its end included."""
    body = f"{key} {_encode(value)}".encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)


def decode_line(line: bytes) -> tuple[str, dict[str, Any]] | None:
    """Key and object of a line, or None if it is torn or damaged."""
    line = line.rstrip(b"\n")
    try:
        is_sound = int(line[:8], 16) == zlib.crc32(line[9:])
        return (line[_KEY].decode(), parse_json(line[42:], dict)) if is_sound else None
    except ValueError:
        return None


def read_lines(
    path: Path, wanted: Collection[str] | None = None, end: int | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (key, object) of the sound lines that begin before byte `end` and whose key is in
    `wanted` (None: all).
    """
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        begin = 0
        for line in file:
            if end is not None and begin >= end:
                return
            begin += len(line)
            # The key is looked at before the checksum, which costs more. latin-1 decodes what a
            # damaged line has in its place.
            is_wanted = wanted is None or line[_KEY].decode("latin-1") in wanted
            if not is_wanted:
                continue
            record = decode_line(line)
            if record is not None:
                yield record


class LineWriter(contextlib.AbstractContextManager["LineWriter"]):
    """The one writer of a file; holds it (flock) until closed or until the process ends, however it
    ends.
    """

    def __init__(self, path: Path) -> None:
        """Raises BlockingIOError: another process writes it; UserError: it cannot be written or
        locked.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = regular_file(str(path), os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            # The lock comes before a look at the end of the file, which another writer would still
            # move.
            if not lock(self._descriptor, path):
                raise BlockingIOError
        except BaseException:
            self.close()
            raise
        self._torn = self._ends_torn()

    def _ends_torn(self) -> bool:
        size = self.length()
        return size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"

    def fileno(self) -> int:
        """The descriptor of the open file."""
        return self._descriptor

    def length(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._descriptor).st_size

    def cut(self, length: int) -> None:
        """Cuts the file to its first `length` bytes."""
        os.ftruncate(self._descriptor, length)
        self._torn = self._ends_torn()

    def sync(self) -> None:
        """Waits until everything written is on the disk; raises as `append`."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def append(self, records: Iterable[tuple[str, dict[str, Any]]], wait: bool = True) -> None:
        """Writes the lines and waits until they are on the disk; without `wait` a crash of the
        machine may lose them.

        Raises UserError: the disk is full or the file cannot be written; lines written before are
        kept.
        """
        data = b"".join(encode_line(key, value) for key, value in records)
        if not data:
            return
        # Ends the torn line, which fails its checksum alone and takes no new line with it.
        if self._torn:
            data = b"\n" + data
        view = memoryview(data)
        try:
            while view:
                # The system may write only a part, as where the disk is nearly full; until the rest
                # follows the file ends within a line.
                view = view[os.write(self._descriptor, view) :]
                self._torn = True
            self._torn = False
            if wait:
                os.fsync(self._descriptor)
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __exit__(self, *exception: object) -> None:
        self.close()


def _unwritable(path: Path, error: OSError) -> UserError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return UserError(f"{path} cannot be written: {reason}; everything answered before is kept")
