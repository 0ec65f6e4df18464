"""Standard output and error of a command that outlives their reader.

`command 2>&1 | tee log` and Ctrl-C: tee ends at once, and whatever the command prints while it
saves would raise BrokenPipeError.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import sys
from typing import Any, TextIO

# Errors of a pipe without a reader, and of a terminal that was closed.
_NO_READER = (errno.EPIPE, errno.EIO)


class _LastingFile(io.FileIO):
    """An open descriptor; what nobody can read any more is dropped."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _NO_READER:
                raise
            # As if all had been written: the buffer above would try the rest again.
            return memoryview(data).nbytes


def outlive_readers() -> None:
    """Makes prints of this process go on, to nowhere, when the reader of its output has ended.

    For commands, which leave their results in files. Streams that somebody replaced stay, and so
    does None, that of a closed descriptor.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        sys.stdout = _lasting(sys.stdout)
    if isinstance(sys.stderr, io.TextIOWrapper) and sys.stderr is sys.__stderr__:
        sys.stderr = _lasting(sys.stderr)


def _lasting(stream: io.TextIOWrapper) -> TextIO:
    """Another stream to where `stream` goes; a file has no reader, and its errors stay errors."""
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    stream.flush()
    # The descriptor belongs to the old stream, which stays open.
    file = _LastingFile(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )


def write_line(line: str) -> None:
    """Writes a line to standard error, past Python's streams: also in the handler of a signal,
    which may interrupt a print. Nothing is raised.
    """
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode(errors="backslashreplace"))
