"""A file of bounded size for computed candidates: new entries replace the oldest, and a kill loses
at most the last write.
"""

from __future__ import annotations

import json
import os
import weakref
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.files import naming, regular_file

KEY_BYTES = 16


class CachedCandidates(NamedTuple):
    """The candidates of a text: means float32 [N, D], log-probabilities float32 [N], numbers of
    tokens int32 [N].
    """

    means: np.ndarray
    log_probs: np.ndarray
    counts: np.ndarray


class CandidateCache:
    """Records of N = `count` candidates of D = `width` in a ring of a file in `folder`, of at most
    `mebibytes`.

    Several processes may open it. Entries that another process overwrote, or of other settings
    (`about`), are not found.
    """

    def __init__(
        self, folder: Path, about: Mapping[str, Any], count: int, width: int, mebibytes: int
    ) -> None:
        record = np.dtype(
            [
                ("key", f"V{KEY_BYTES}"),
                ("sequence", "<u8"),  # number of the write, from 1; 0 in an unused record
                ("means", "<f4", (count, width)),
                ("log_probs", "<f4", (count,)),
                ("counts", "<i4", (count,)),
                ("check", "<u4"),  # CRC of the record before it, salted
            ]
        )
        self.capacity = mebibytes * 2**20 // record.itemsize
        allowed = f"at least {-(-record.itemsize // 2**20)}, one state's candidates"
        checks.require(self.capacity > 0, "candidates.cache_mebibytes", mebibytes, allowed)
        # A record of another `about` fails the check, as a torn one does.
        self._salt = zlib.crc32(
            json.dumps({**about, "shape": [count, width]}, sort_keys=True).encode()
        )
        self._path = folder / "candidates.bin"
        size = self.capacity * record.itemsize
        if not self._path.exists() or self._path.stat().st_size != size:
            _make(self._path, size)
        # Memory-mapped for reading only: on a full disk a write to mapped memory would kill the
        # process.
        self._file = open(self._path, "r+b", buffering=0, opener=regular_file)  # noqa: SIM115 - closed by the finalizer
        weakref.finalize(self, self._file.close)
        self._records = np.memmap(self._file, record, "r", shape=(self.capacity,))
        sequences = np.asarray(self._records["sequence"])
        # By the order of writing, without records that were never written.
        order = np.argsort(sequences, kind="stable")
        order = order[sequences[order] > 0]
        keys = self._records["key"]
        # Of equal keys the newest stays.
        self._index = {bytes(keys[record]): int(record) for record in order}
        self._written = int(sequences.max(initial=0))

    def find(self, key: bytes) -> CachedCandidates | None:
        """The entry of a key; None if it is missing or torn."""
        index = self._index.get(key)
        if index is None:
            return None
        record = self._records[index].copy()
        if bytes(record["key"]) != key or int(record["check"]) != self._check(record):
            return None
        return CachedCandidates(record["means"], record["log_probs"], record["counts"])

    def add(self, key: bytes, entry: CachedCandidates) -> None:
        """Adds an entry; a full cache drops its oldest."""
        index = self._written % self.capacity
        self._written += 1
        old = bytes(self._records["key"][index])
        # Unless a newer record has the same key.
        if self._index.get(old) == index:
            del self._index[old]
        record = np.zeros((), self._records.dtype)
        # A numpy bytes field would drop zeros at its end.
        record["key"] = np.void(key)
        record["sequence"] = self._written
        record["means"] = entry.means
        record["log_probs"] = entry.log_probs
        record["counts"] = entry.counts
        record["check"] = self._check(record)
        data = record.tobytes()
        written = 0
        with naming(self._path):
            while written < len(data):  # one call may write a part only
                offset = index * len(data) + written
                written += os.pwrite(self._file.fileno(), data[written:], offset)
        self._index[key] = index

    def _check(self, record: Any) -> int:
        return zlib.crc32(np.asarray(record).tobytes()[:-4], self._salt)


def _make(path: Path, size: int) -> None:
    """Replaces the file by an empty sparse one; processes that have the old one open keep it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with naming(path), open(fresh, "wb", opener=regular_file) as file:
        file.truncate(size)
    os.replace(fresh, path)
