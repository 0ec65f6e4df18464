"""Ways in which a file is damaged."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

_OTHERS: tuple[Any, ...] = (None, -1, 2.5e300, "x", "", [], {}, [None], {"x": 1}, True, 10**30)


def _nodes(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inside:
        yield from _nodes(child, (*place, key))


def _replaced(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    if not place:
        return other
    (key, *inside), changed = place, copy.copy(value)
    if other is KeyError and not inside:
        del changed[key]
    else:
        changed[key] = _replaced(value[key], tuple(inside), other)
    return changed


def json_harms(data: bytes, rng: np.random.Generator, count: int) -> Iterator[tuple[str, bytes]]:
    """A value of another kind in any place of a JSON file, or of one of its lines; a key that is lost."""
    try:
        parts = [json.loads(data)]
    except ValueError:
        try:
            parts = [json.loads(line) for line in data.splitlines()]
        except ValueError:
            return
    places = [(n, place) for n, part in enumerate(parts) for place in _nodes(part)]
    cases = [
        (*at, other) for at in places for other in (*_OTHERS, KeyError) if at[1] or other is not KeyError
    ]
    for number in rng.permutation(len(cases))[:count]:
        n, place, other = cases[number]
        changed = [*parts[:n], _replaced(parts[n], place, other), *parts[n + 1 :]]
        end = "\n" if data.endswith(b"\n") else ""
        name = "lost" if other is KeyError else repr(other)
        text = "\n".join(map(json.dumps, changed)) + end
        yield f"{n}:{'/'.join(map(str, place))} = {name}", text.encode()


def byte_harms(data: bytes, rng: np.random.Generator, count: int) -> Iterator[tuple[str, bytes]]:
    """Cut off, emptied, flipped, overwritten, longer."""
    size = len(data)
    yield "emptied", b""
    for cut in sorted({1, size // 4, size // 2, size - 2, size - 1} & set(range(1, size))):
        yield f"cut off at {cut}", data[:cut]
    for _ in range(count):
        place, bit = int(rng.integers(size)), int(rng.integers(8))
        changed = bytearray(data)
        changed[place] ^= 1 << bit
        yield f"bit {bit} of byte {place} flipped", bytes(changed)
    start = size // 3
    yield "zeros in the middle", data[:start] + bytes(min(64, size - start)) + data[start + 64 :]
    yield "all zeros", bytes(size)
    yield "noise", rng.bytes(size)
    yield "longer", data + rng.bytes(40)
    yield "twice", data + data
    yield "no text", b"\xff\xfe\0" + data
    yield "deep", b"[" * 100_000
