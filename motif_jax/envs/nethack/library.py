"""One copy of the engine's machine code for all games of all processes.

nle loads a private copy of its library for each game, because the game lives in the library's global variables. The
code and constants in those copies are equal byte for byte, but the caches of a processor cannot know that: twenty games
in turns cost three times as much a step as one game alone. Mapping the pages that nobody writes from the one installed
file gives back a third of it, and the memory.
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import mmap
import os
import struct
import sys
from collections.abc import Callable
from typing import NamedTuple

_PAGE = mmap.PAGESIZE
_MAP_FIXED = 0x10
_PT_LOAD, _EXECUTE, _WRITE, _READ = 1, 1, 2, 4


class Segment(NamedTuple):
    """A part of a library that is loaded and never written, in bytes, rounded to pages."""

    offset: int
    address: int
    length: int
    protection: int


def read_only_segments(path: str | os.PathLike[str]) -> list[Segment]:
    """The loadable parts of the 64-bit ELF file `path` that are not writable. Raises ValueError for other files."""
    with open(path, "rb") as file:
        header = file.read(64)
        if header[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
        (table,) = struct.unpack_from("<Q", header, 32)
        entry_size, entries = struct.unpack_from("<HH", header, 54)
        file.seek(table)
        content = file.read(entry_size * entries)
    found = []
    for index in range(entries):
        kind, flags, offset, address, _, size, *_ = struct.unpack_from(
            "<IIQQQQQQ", content, index * entry_size
        )
        if kind == _PT_LOAD and not flags & _WRITE:
            skew = offset % _PAGE
            length = (size + skew + _PAGE - 1) // _PAGE * _PAGE
            protection = (mmap.PROT_READ if flags & _READ else 0) | (
                mmap.PROT_EXEC if flags & _EXECUTE else 0
            )
            found.append(Segment(offset - skew, address - skew, length, protection))
    return found


@functools.cache
def _shared(path: str) -> tuple[int, list[Segment]]:
    """A descriptor of the installed library, kept open, and its segments."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC), read_only_segments(path)


@functools.cache
def _mmap() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    function.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    return function


def _loaded_at(inode: int) -> int:
    """The address where this process has loaded the file with that inode."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            fields = line.split(None, 5)
            if (
                len(fields) == 6
                and int(fields[4]) == inode
                and "nle.so" in fields[5]
                and not int(fields[2], 16)
            ):
                return int(fields[0].split("-")[0], 16)
    raise OSError(f"no library with inode {inode} is loaded")


def share_code(copy: int, installed: str) -> bool:
    """Puts pages of the file `installed` in the place of the read-only pages of a loaded copy of it.

    Args:
        copy: descriptor of the loaded copy, which must have the same content.
        installed: path of the file whose pages are to be used.

    Returns:
        Whether it was done: only Linux on x86-64 loads copies in a way that allows it.

    Raises:
        OSError: the system refused.
    """
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return False
    descriptor, segments = _shared(installed)
    base = _loaded_at(os.fstat(copy).st_ino)
    for segment in segments:
        address = base + segment.address
        flags = mmap.MAP_PRIVATE | _MAP_FIXED
        got = _mmap()(address, segment.length, segment.protection, flags, descriptor, segment.offset)
        if got != address:
            number = ctypes.get_errno()
            raise OSError(number, f"mapping the engine's code: {os.strerror(number)}")
    return True


def set_long(path: str, name: str, value: int) -> int:
    """Sets a global variable of type long in a loaded copy of the library.

    Args:
        path: what the copy was loaded from.
        name: of the variable.
        value: the new value.

    Returns:
        The value before.

    Raises:
        OSError: the copy is not loaded.
        ValueError: it has no such variable.
    """
    loaded = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    try:
        variable = ctypes.c_long.in_dll(loaded, name)
        before, variable.value = variable.value, value
    finally:
        # Held any longer it would outlive its game: nle starts a game by loading the copy anew.
        _ctypes.dlclose(loaded._handle)
    return before
