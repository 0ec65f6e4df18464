"""Reads what the engine needs of a shared library (ELF, 64 bits, little-endian), and writes a minimal one."""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

PAGE = mmap.PAGESIZE
_LOAD, _DYNAMIC, _STACK, _RELRO = 1, 2, 0x6474E551, 0x6474E552
_EXECUTE, _WRITE, _READ = 1, 2, 4
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_END, _NEEDED, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _SYMBOL_SIZE = 0, 1, 5, 6, 10, 11
_STUB_BYTES, _STUBS = 2, 23
_INIT, _FINI, _INIT_ARRAY, _FINI_ARRAY, _INIT_BYTES, _FINI_BYTES = 12, 13, 25, 26, 27, 28
_SHARED_LIBRARY, _VERSION = 3, 1
_RELOCATION = struct.Struct("<QQq")
_JUMP_THROUGH = b"\xff\x25"


class Segment(NamedTuple):
    """A read-only part of a library, in bytes, rounded to pages."""

    offset: int
    address: int
    length: int
    protection: int


class Calls(NamedTuple):
    """Functions that the loader calls: a single one (0 for none), and a table of `count` pointers."""

    function: int
    table: int
    entries: int


class Stub(NamedTuple):
    """The stub of a call into another library: a jump to the address in `slot`."""

    address: int
    slot: int


class LibraryLayout(NamedTuple):
    """Addresses in a loaded library, relative to its base.

    Attributes:
      read_only: the parts that are not writable.
      data: starts and ends of writable parts that the file and the loader fill.
      zeros: starts and ends of writable parts that begin as zero.
      end: of the whole library.
      first, last: functions that the loader calls after loading and before unloading.
      stubs: stubs of an x86-64 library that have the expected form.
    """

    read_only: list[Segment]
    data: list[tuple[int, int]]
    zeros: list[tuple[int, int]]
    end: int
    first: Calls
    last: Calls
    stubs: list[Stub]


def layout(path: str | os.PathLike[str]) -> LibraryLayout:
    """Reads the library `path`; ValueError for another kind of file."""
    with open(path, "rb") as file:
        content = file.read()
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
    fields = _HEADER.unpack_from(content)
    table, size, count = fields[5], fields[9], fields[10]
    parts = [_SEGMENT.unpack_from(content, table + index * size) for index in range(count)]
    loaded = [part for part in parts if part[0] == _LOAD]
    # The loader writes that only once, and then protects its whole pages.
    protected = [(part[3], (part[3] + part[6]) // PAGE * PAGE) for part in parts if part[0] == _RELRO]
    data, zeros = [], []
    for _, flags, _, address, _, filled, whole, _ in loaded:
        if flags & _WRITE:
            start = max([address, *(stop for begin, stop in protected if begin < address + whole)])
            data.append((start, max(start, address + filled)))
            zeros.append((max(start, address + filled), max(start, address + whole)))
    entries = _dynamic(content, parts)
    return LibraryLayout(
        [_segment(part) for part in loaded if not part[1] & _WRITE],
        data,
        zeros,
        max((part[3] + part[6] for part in loaded), default=0),
        Calls(entries.get(_INIT, 0), entries.get(_INIT_ARRAY, 0), entries.get(_INIT_BYTES, 0) // 8),
        Calls(entries.get(_FINI, 0), entries.get(_FINI_ARRAY, 0), entries.get(_FINI_BYTES, 0) // 8),
        _stubs(content, parts, entries),
    )


def _segment(part: tuple[int, ...]) -> Segment:
    _, flags, offset, address, _, size, *_ = part
    skew = offset % PAGE
    length = (size + skew + PAGE - 1) // PAGE * PAGE
    protection = (mmap.PROT_READ if flags & _READ else 0) | (mmap.PROT_EXEC if flags & _EXECUTE else 0)
    return Segment(offset - skew, address - skew, length, protection)


def _dynamic(content: bytes, parts: list[tuple[int, ...]]) -> dict[int, int]:
    for kind, _, offset, _, _, size, *_ in parts:
        if kind == _DYNAMIC:
            return dict(_ENTRY.iter_unpack(content[offset : offset + size // _ENTRY.size * _ENTRY.size]))
    return {}


def _stubs(content: bytes, parts: list[tuple[int, ...]], entries: dict[int, int]) -> list[Stub]:
    def place(address: int) -> int:
        for kind, _, offset, start, _, filled, *_ in parts:
            if kind == _LOAD and start <= address < start + filled:
                return offset + address - start
        return len(content)

    found = []
    start = place(entries.get(_STUBS, -1))
    for slot, _, _ in _RELOCATION.iter_unpack(content[start : start + entries.get(_STUB_BYTES, 0)]):
        # The file's slot leads behind the stub's jump, six bytes, where the loader is asked for the address.
        address = int.from_bytes(content[place(slot) : place(slot) + 8], "little") - 6
        jump = content[place(address) : place(address) + 6]
        if (
            jump[:2] == _JUMP_THROUGH
            and address + 6 + int.from_bytes(jump[2:], "little", signed=True) == slot
        ):
            found.append(Stub(address, slot))
    return found


def pointing_to(path: str, like: bytes) -> bytes:
    """An empty library that depends on the one at `path` (with a slash), so that symbols resolve there.

    `like` is the beginning of a library for the same machine.
    """
    head = _HEADER.unpack_from(like)
    strings = b"\0" + os.fsencode(path) + b"\0"
    told_at = _HEADER.size + 3 * _SEGMENT.size
    told_bytes = 6 * _ENTRY.size
    symbols_at, symbol_bytes = told_at + told_bytes, 24
    strings_at = symbols_at + symbol_bytes
    entries = (
        (_NEEDED, 1),
        (_STRINGS, strings_at),
        (_SYMBOLS, symbols_at),
        (_STRINGS_SIZE, len(strings)),
        (_SYMBOL_SIZE, symbol_bytes),
        (_END, 0),
    )
    whole = strings_at + len(strings)
    parts = (
        (_LOAD, _READ | _WRITE, 0, 0, 0, whole, whole, PAGE),
        (_DYNAMIC, _READ | _WRITE, told_at, told_at, told_at, told_bytes, told_bytes, 8),
        # Without it the loader would make the stacks executable.
        (_STACK, _READ | _WRITE, 0, 0, 0, 0, 0, 16),
    )
    header = (head[0], _SHARED_LIBRARY, head[2], _VERSION, 0, _HEADER.size, 0, head[7])
    sizes = (_HEADER.size, _SEGMENT.size, len(parts), 0, 0, 0)
    return b"".join(
        (
            _HEADER.pack(*header, *sizes),
            *(_SEGMENT.pack(*part) for part in parts),
            *(_ENTRY.pack(*entry) for entry in entries),
            bytes(symbol_bytes),
            strings,
        )
    )
