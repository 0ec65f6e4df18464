"""Shares one copy of nle's library code among all games of all processes, and loads it once.

nle loads a private copy of its library for each game, because the game lives in the library's global variables. The
processor's caches cannot share the equal code of those copies: with twenty games in turns a step costs three times as
much. Three remedies:

* Pages that are never written are mapped from the one installed file, which gives back a third of the time.
* Calls inside the library jump directly, not through each game's own table of addresses, which also fills the caches.
* The library stays loaded from game to game; restoring its variables replaces reloading it (`KeptLibrary`).
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import mmap
import os
import shutil
import struct
import sys
import weakref
from collections.abc import Callable

from motif_jax.envs.nethack import elf

_NAME = "nle.so"
_MAP_FIXED = 0x10
_PUNCH_HOLE = 3  # and keep the file's size
_JUMP, _JUMP_AT_ONCE = struct.Struct("<Bi"), 0xE9


def no_use_of_keeping() -> str | None:
    """Why engines here must be loaded again for each game, each with its own code; None if they need not be."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "only where Linux runs on x86-64 is it known how a library stays loaded"
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # other libraries may know the question, and have no answer
        name = ""
    if not name.startswith("glibc"):
        return "only of the GNU C library is it known how a library stays loaded"
    return None


class _Installed:
    """The installed library: `descriptor`, kept open, `layout`, and `calls`, pages of stubs that jump directly.

    All copies map that open file, so the file may be replaced while games are played.
    """

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.path = f"/proc/self/fd/{self.descriptor}"
        self.layout = elf.layout(self.path)
        self.calls: tuple[int, elf.Segment] | None = None

    def bind(self, base: int) -> None:
        """Fills `calls` from the loader's results in the first copy, at `base`; they are the same in all others."""
        stubs, end = self.layout.stubs, self.layout.end
        if self.calls is not None or not stubs:
            return
        start = min(stubs).address // mmap.PAGESIZE * mmap.PAGESIZE
        stop = -(-(max(stubs).address + _JUMP.size) // mmap.PAGESIZE) * mmap.PAGESIZE
        code = next(
            segment for segment in self.layout.read_only if 0 <= start - segment.address < segment.length
        )
        pages = bytearray(ctypes.string_at(base + start, stop - start))
        for address, slot in stubs:
            target = ctypes.c_size_t.from_address(base + slot).value - base
            if 0 <= target < end:
                _JUMP.pack_into(pages, address - start, _JUMP_AT_ONCE, target - address - _JUMP.size)
        file = os.memfd_create("nle calls", os.MFD_CLOEXEC)
        os.write(file, pages)
        self.calls = file, elf.Segment(0, start, stop - start, code.protection)


_installed = functools.cache(_Installed)


@functools.cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    return library


def _loaded_at(inode: int) -> int:
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            fields = line.split(None, 5)
            if len(fields) == 6 and int(fields[4]) == inode and _NAME in fields[5] and not int(fields[2], 16):
                return int(fields[0].split("-")[0], 16)
    raise OSError(f"no library with inode {inode} is loaded")


class KeptLibrary:
    """A copy of the library at `path` that stays loaded from game to game and shares the installed file's code.

    nle refuses a library that is loaded already. It therefore loads a stand-in (`stand_in`), which only depends on this
    copy, so that symbols resolve here.

    Raises:
        OSError: the system refused.
    """

    def __init__(self, path: str) -> None:
        installed = _installed(path)
        layout = installed.layout
        self._head = os.pread(installed.descriptor, mmap.PAGESIZE, 0)
        file = os.memfd_create(_NAME, os.MFD_CLOEXEC)
        self._path = f"/proc/self/fd/{file}"
        try:
            shutil.copyfile(installed.path, self._path)
            # At once, not name by name when a name is first needed: all of it is to stay.
            self._library = ctypes.CDLL(self._path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError:
            os.close(file)
            raise
        self._unload = weakref.finalize(self, _unload, self._library._handle, self._path, file)
        self._unload.atexit = False
        base = _loaded_at(os.fstat(file).st_ino)
        installed.bind(base)
        for segment in layout.read_only:
            _map(base, segment, installed.descriptor)
            # Nobody reads that part of the copy any more: the memory is given back where the system knows how. Its first and last
            # page may hold a part of what is written, too.
            inside = max(0, segment.length - 2 * mmap.PAGESIZE)
            _libc().fallocate(file, _PUNCH_HOLE, segment.offset + mmap.PAGESIZE, inside)
        if installed.calls is not None:
            calls, pages = installed.calls
            _map(base, pages, calls)
        self._data = [(base + at, ctypes.string_at(base + at, stop - at)) for at, stop in layout.data]
        self._zeros = [(base + at, stop - at) for at, stop in layout.zeros]
        # What the loader calls, in its order.
        self._first = _functions(base, layout.first)
        self._last = _functions(base, layout.last)[::-1]

    def stand_in(self) -> bytes:
        return elf.pointing_to(self._path, self._head)

    def long(self, name: str) -> ctypes.c_long:
        """The value of a global variable of type long; ValueError for an unknown name."""
        return ctypes.c_long.in_dll(self._library, name)

    def restore(self) -> None:
        """Restores the variables to their state after loading; no game may be running. What they point to is left alone."""
        for function in self._last:
            function(0, None, None)
        for address, content in self._data:
            ctypes.memmove(address, content, len(content))
        for address, size in self._zeros:
            ctypes.memset(address, 0, size)
        for function in self._first:
            function(0, None, None)

    def close(self) -> None:
        """Unloads it once no game runs in it; may be called twice."""
        self._unload()


def _unload(handle: int, path: str, file: int) -> None:
    _ctypes.dlclose(handle)
    try:
        still_there = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        os.close(file)
    else:
        # A game is left in it. The loader goes by names: the next file with this descriptor would pass for the library.
        _ctypes.dlclose(still_there._handle)


def _map(base: int, segment: elf.Segment, descriptor: int) -> None:
    address, flags = base + segment.address, mmap.MAP_PRIVATE | _MAP_FIXED
    got = _libc().mmap(address, segment.length, segment.protection, flags, descriptor, segment.offset)
    if got != address:
        raise _failed("mapping the engine's code")


def _functions(base: int, calls: elf.Calls) -> list[Callable[..., None]]:
    """The functions of `calls` in a library at `base`: its own first, then the table's."""
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    table = (ctypes.c_size_t * calls.entries).from_address(base + calls.table)
    own = [base + calls.function] if calls.function else []
    return [kind(address) for address in [*own, *table]]


def _failed(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def set_long(path: str, name: str, value: int) -> None:
    """Sets a global variable of type long in the copy that nle has loaded from `path`.

    Raises:
        OSError: the copy is not loaded.
        ValueError: no such variable.
    """
    loaded = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    try:
        ctypes.c_long.in_dll(loaded, name).value = value
    finally:
        # Held any longer it would outlive its game: nle starts a game by loading the copy again.
        _ctypes.dlclose(loaded._handle)
