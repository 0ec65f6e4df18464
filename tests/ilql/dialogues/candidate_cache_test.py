from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from motif_jax.ilql.chai_candidates import CachedCandidates, CandidateCache

COUNT = 2
WIDTH = 4
FILE = "candidates.bin"


def entry(number: int) -> CachedCandidates:
    return CachedCandidates(
        means=np.full((COUNT, WIDTH), number, np.float32),
        log_probs=np.full(COUNT, -number, np.float32),
        counts=np.full(COUNT, number, np.int32),
    )


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def open_cache(folder: Path, policy: str = "a") -> CandidateCache:
    return CandidateCache(folder, {"policy": policy}, COUNT, WIDTH, mebibytes=1)


def filled(folder: Path) -> CandidateCache:
    """A cache into which three more entries were written than it holds, numbered from 1."""
    cache = open_cache(folder)
    for number in range(1, cache.capacity + 4):
        cache.add(key(number), entry(number))
    return cache


def assert_finds(cache: CandidateCache, number: int) -> None:
    cached = cache.find(key(number))
    assert cached is not None
    for array, expected in zip(cached, entry(number), strict=True):
        np.testing.assert_array_equal(array, expected)


def test_a_file_has_at_most_its_size(tmp_path: Path) -> None:
    capacity = filled(tmp_path).capacity

    size = (tmp_path / FILE).stat().st_size
    assert 2**20 - size // capacity < size <= 2**20


@pytest.mark.parametrize("reopened", [False, True])
def test_new_entries_replace_the_oldest(tmp_path: Path, reopened: bool) -> None:
    cache = filled(tmp_path)
    newest = cache.capacity + 3
    if reopened:
        cache = open_cache(tmp_path)

    assert cache.find(key(3)) is None
    assert_finds(cache, 4)
    assert_finds(cache, newest)


def tear(folder: Path, number: int, capacity: int) -> None:
    """Overwrites a part of an entry, as a kill during its write leaves it."""
    path = folder / FILE
    record_bytes = path.stat().st_size // capacity
    with path.open("r+b") as file:
        file.seek((number - 1) % capacity * record_bytes + 40)
        file.write(b"\x01\x02\x03")


def test_a_torn_entry_is_missing_and_others_stay(tmp_path: Path) -> None:
    capacity = filled(tmp_path).capacity
    tear(tmp_path, capacity, capacity)

    cache = open_cache(tmp_path)

    assert cache.find(key(capacity)) is None
    assert_finds(cache, capacity + 1)


def test_a_torn_entry_may_be_written_again(tmp_path: Path) -> None:
    capacity = filled(tmp_path).capacity
    tear(tmp_path, capacity, capacity)
    cache = open_cache(tmp_path)

    cache.add(key(capacity), entry(capacity))

    assert_finds(cache, capacity)


def test_entries_of_another_policy_are_missing(tmp_path: Path) -> None:
    open_cache(tmp_path, "a").add(key(1), entry(1))

    assert open_cache(tmp_path, "b").find(key(1)) is None


def test_a_full_disk_loses_the_new_entry_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_cache(tmp_path)
    cache.add(key(1), entry(1))

    def pwrite(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OSError, match=r"No space left.*candidates\.bin"):
        cache.add(key(2), entry(2))

    assert cache.find(key(2)) is None
    assert_finds(open_cache(tmp_path), 1)


def test_a_file_of_another_size_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    open_cache(tmp_path).add(key(1), entry(1))
    os.truncate(tmp_path / FILE, 100)

    assert open_cache(tmp_path).find(key(1)) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, "mine.txt"]
