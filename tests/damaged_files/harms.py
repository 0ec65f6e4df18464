"""Ways in which a file is damaged."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

# Values of other kinds than a field has.
_OTHERS: tuple[Any, ...] = (None, -1, 2.5e300, "x", "", [], {}, [None], {"x": 1}, True, 10**30)


# Stands for a key that is lost.
_LOST = object()


# The keys and indices that lead to a value inside JSON.
Keys = tuple[Any, ...]


def _all_keys(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """The keys of a JSON value, and of everything inside it."""
    yield keys
    children: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from _all_keys(child, (*keys, key))


def _replaced(value: Any, keys: Keys, other: Any) -> Any:
    """A copy of a JSON value with `other` at `keys`."""
    if not keys:
        return other
    key, *inner_keys = keys
    changed = copy.copy(value)
    if other is _LOST and not inner_keys:
        del changed[key]
    else:
        changed[key] = _replaced(value[key], tuple(inner_keys), other)
    return changed


def _parsed(data: bytes) -> list[Any]:
    """The JSON value of a file, or those of its lines; [] for another file."""
    for texts in ([data], data.splitlines()):
        try:
            return [json.loads(text) for text in texts]
        except ValueError:
            continue
    return []


def json_harms(data: bytes, rng: np.random.Generator, count: int) -> Iterator[tuple[str, bytes]]:
    """A value of another kind anywhere in a JSON file, or in one of its lines; a key that is
    lost.
    """
    parts = _parsed(data)
    cases = []
    for number, part in enumerate(parts):
        for keys in _all_keys(part):
            cases += [(number, keys, other) for other in _OTHERS]
            if keys:
                cases.append((number, keys, _LOST))
    end = "\n" if data.endswith(b"\n") else ""
    for case in rng.permutation(len(cases))[:count]:
        number, keys, other = cases[case]
        changed = [*parts[:number], _replaced(parts[number], keys, other), *parts[number + 1 :]]
        shown = "lost" if other is _LOST else repr(other)
        text = "\n".join(map(json.dumps, changed)) + end
        yield f"{number}:{'/'.join(map(str, keys))} = {shown}", text.encode()


def byte_harms(data: bytes, rng: np.random.Generator, count: int) -> Iterator[tuple[str, bytes]]:
    """Cut off, emptied, flipped, overwritten, longer."""
    size = len(data)
    yield "emptied", b""
    for cut in sorted({1, size // 4, size // 2, size - 2, size - 1} & set(range(1, size))):
        yield f"cut off at {cut}", data[:cut]
    for _ in range(count):
        index = int(rng.integers(size))
        bit = int(rng.integers(8))
        changed = bytearray(data)
        changed[index] ^= 1 << bit
        yield f"bit {bit} of byte {index} flipped", bytes(changed)
    start = size // 3
    yield "zeros in the middle", data[:start] + bytes(min(64, size - start)) + data[start + 64 :]
    yield "all zeros", bytes(size)
    yield "noise", rng.bytes(size)
    yield "longer", data + rng.bytes(40)
    yield "twice", data + data
    yield "no text", b"\xff\xfe\0" + data
    # More brackets than Python's stack has room for.
    yield "deep", b"[" * 100_000
