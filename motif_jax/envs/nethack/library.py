"""Shares one copy of nle's library code among all games of all processes, and loads it once.

nle loads a private copy of its library for each game, because the game's state is in the library's
global variables. The processor's caches cannot share the equal code of the copies: with twenty
games in turns a step takes three times as long. Two remedies:

* Pages that are never written are mapped from the installed file, which saves a third of the time.
* The library stays loaded from game to game; restoring its variables replaces reloading it
  (`KeptLibrary`).
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import mmap
import os
import platform
import shutil
import struct
import sys
import weakref
from collections.abc import Callable

_NAME = "nle.so"
_MAP_FIXED = 0x10
_PUNCH_HOLE = 3  # and keep the file's size
# Of ELF files, 64 bits: header; segment (type, flags, offset, address, physical address, bytes in
# the file, bytes in memory, alignment); entry of the loader's table (tag, value).
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_LOAD, _DYNAMIC, _STACK, _RELRO = 1, 2, 0x6474E551, 0x6474E552
_EXECUTE, _WRITE, _READ = 1, 2, 4
_END, _NEEDED, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _SYMBOL_SIZE = 0, 1, 5, 6, 10, 11
# Tags of the loader's functions (after loading, before unloading): a single function, a table of
# pointers, its bytes.
_INIT = (12, 25, 27)
_FINI = (13, 26, 28)


def reload_reason() -> str | None:
    """Why each game on this system needs a newly loaded copy of the code; None if a library can
    stay loaded.
    """
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "only where Linux runs on x86-64 is it known how a library stays loaded"
    if platform.libc_ver()[0] != "glibc":
        return "only of the GNU C library is it known how a library stays loaded"
    return None


@functools.cache
def _installed(path: str) -> int:
    """The installed library, kept open for all copies to map, so that it may be replaced during
    games.
    """
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


@functools.cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    return library


class _Loaded:
    """Addresses of a loaded library, from the loader's record (`link_map`) and the library's
    headers.

    `read_only` lists (address, offset in the file, bytes, protection) of parts without variables,
    in whole pages; `data` and `zeros` list (address, bytes) of variables that the file and the
    loader fill, and of those that begin as zero.
    """

    def __init__(self, handle: int) -> None:
        self._base, _, self._table = (ctypes.c_size_t * 3).from_address(handle)
        header = _HEADER.unpack(ctypes.string_at(self._base, _HEADER.size))
        headers = ctypes.string_at(self._base + header[5], header[10] * _SEGMENT.size)
        parts = list(_SEGMENT.iter_unpack(headers))
        # The loader writes this segment once and then protects its whole pages.
        relro = [(part[3], part[3] + part[6]) for part in parts if part[0] == _RELRO]
        protected = [(start, stop // mmap.PAGESIZE * mmap.PAGESIZE) for start, stop in relro]
        self.read_only: list[tuple[int, int, int, int]] = []
        self.data: list[tuple[int, int]] = []
        self.zeros: list[tuple[int, int]] = []
        for kind, flags, offset, address, _, file_bytes, memory_bytes, _ in parts:
            if kind != _LOAD:
                continue
            if flags & _WRITE:
                # Variables begin after the pages that are protected.
                start = max(
                    [
                        address,
                        *(stop for begin, stop in protected if begin < address + memory_bytes),
                    ]
                )
                middle = max(start, address + file_bytes)
                stop = max(start, address + memory_bytes)
                self.data.append((self._base + start, middle - start))
                self.zeros.append((self._base + middle, stop - middle))
            else:
                # A mapping begins and ends with a page.
                skew = offset % mmap.PAGESIZE
                length = (file_bytes + skew + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
                protection = mmap.PROT_READ if flags & _READ else 0
                if flags & _EXECUTE:
                    protection |= mmap.PROT_EXEC
                self.read_only.append(
                    (self._base + address - skew, offset - skew, length, protection)
                )

    def functions(self, tags: tuple[int, int, int]) -> list[Callable[..., None]]:
        """The loader's functions at the entries `tags`: the single one first, then the table's."""
        entries = {}
        address = self._table
        while True:
            tag, value = _ENTRY.unpack(ctypes.string_at(address, _ENTRY.size))
            if tag == _END:
                break
            entries[tag] = value
            address += _ENTRY.size

        single, table, size = (entries.get(tag, 0) for tag in tags)
        addresses = [self._base + single] if single else []
        addresses += (ctypes.c_size_t * (size // 8)).from_address(self._base + table)
        signature = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        return [signature(address) for address in addresses]


class KeptLibrary:
    """A copy of the library at `path` that stays loaded from game to game and shares the installed
    file's code.

    nle rejects a library that is loaded already. It therefore loads an empty library (`stand_in`)
    that depends on this copy, so that symbols resolve here. Raises OSError: the system rejected a
    call.
    """

    def __init__(self, path: str) -> None:
        installed = _installed(path)
        file = os.memfd_create(_NAME, os.MFD_CLOEXEC)
        self._path = f"/proc/self/fd/{file}"
        try:
            shutil.copyfile(f"/proc/self/fd/{installed}", self._path)
            # Binds all symbols now, not on first use, since the state after loading is kept.
            self._library = ctypes.CDLL(self._path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError:
            os.close(file)
            raise
        # Unloads the library once no game runs in it; may be called twice.
        self.close = weakref.finalize(self, _unload, self._library._handle, self._path, file)
        self.close.atexit = False
        loaded = _Loaded(self._library._handle)
        for address, offset, length, protection in loaded.read_only:
            _map(address, length, protection, installed, offset)
            # This part of the copy is unused now: frees its memory if the system can. Its first and
            # last page may hold written data too.
            inside = max(0, length - 2 * mmap.PAGESIZE)
            _libc().fallocate(file, _PUNCH_HOLE, offset + mmap.PAGESIZE, inside)
        self._data = [(address, ctypes.string_at(address, size)) for address, size in loaded.data]
        self._zeros = loaded.zeros
        # The loader's functions, in its order: it unloads from the last to the first.
        self._initialisers = loaded.functions(_INIT)
        self._finalisers = loaded.functions(_FINI)[::-1]

    def stand_in(self) -> bytes:
        """The contents of the empty library that nle loads."""
        return _pointing_to(self._path)

    def long(self, name: str) -> ctypes.c_long:
        """The value of a global variable of type long; ValueError for an unknown name."""
        return ctypes.c_long.in_dll(self._library, name)

    def restore(self) -> None:
        """Restores the variables, but not memory they point to, to their state after loading; no
        game may be running.
        """
        for function in self._finalisers:
            function(0, None, None)
        for address, content in self._data:
            ctypes.memmove(address, content, len(content))
        for address, size in self._zeros:
            ctypes.memset(address, 0, size)
        for function in self._initialisers:
            function(0, None, None)


def _unload(handle: int, path: str, file: int) -> None:
    _ctypes.dlclose(handle)
    try:
        still_loaded = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        os.close(file)
    else:
        # A game still uses it. The loader compares names: the next file with this descriptor would
        # count as the library.
        _ctypes.dlclose(still_loaded._handle)


def _map(address: int, length: int, protection: int, descriptor: int, offset: int) -> None:
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    if _libc().mmap(address, length, protection, flags, descriptor, offset) != address:
        number = ctypes.get_errno()
        raise OSError(number, f"mapping the engine's code: {os.strerror(number)}")


def _pointing_to(path: str) -> bytes:
    """An empty x86-64 library that depends on the one at `path` (with a slash), so that symbols
    resolve there.
    """
    strings = b"\0" + os.fsencode(path) + b"\0"
    table_at = _HEADER.size + 3 * _SEGMENT.size
    table_bytes = 6 * _ENTRY.size
    symbol_bytes = 24
    symbols_at = table_at + table_bytes
    strings_at = symbols_at + symbol_bytes
    file_bytes = strings_at + len(strings)
    flags = _READ | _WRITE
    header = (
        b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, _HEADER.size, 0, 0, _HEADER.size, _SEGMENT.size, 3, 0, 0, 0,
    )  # fmt: skip
    parts = (
        (_LOAD, flags, 0, 0, 0, file_bytes, file_bytes, mmap.PAGESIZE),
        (_DYNAMIC, flags, table_at, table_at, table_at, table_bytes, table_bytes, 8),
        # without this the loader would make the stacks executable
        (_STACK, flags, 0, 0, 0, 0, 0, 16),
    )
    entries = (
        (_NEEDED, 1),
        (_STRINGS, strings_at),
        (_SYMBOLS, symbols_at),
        (_STRINGS_SIZE, len(strings)),
        (_SYMBOL_SIZE, symbol_bytes),
        (_END, 0),
    )
    packed = [_HEADER.pack(*header), *(_SEGMENT.pack(*part) for part in parts)]
    return b"".join(
        [*packed, *(_ENTRY.pack(*entry) for entry in entries), bytes(symbol_bytes), strings]
    )


def set_long(path: str, name: str, value: int) -> None:
    """Sets a variable of type long in the copy that nle has loaded from `path`. Raises OSError: it
    is not loaded; ValueError.
    """
    loaded = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    try:
        ctypes.c_long.in_dll(loaded, name).value = value
    finally:
        # Released at once: nle starts a game by loading the copy again, so this handle would
        # outlive its game.
        _ctypes.dlclose(loaded._handle)
