"""The arrays of a pairs dataset: names, shapes, dtypes and digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from motif_jax.core.errors import UserError

# Width of data/message.npy, as NLE and the published dataset have it; shorter messages end in
# zeros.
MESSAGE_BYTES = 256

# Folder of collect's unfinished work. A dataset that has it, but no META, is incomplete.
STAGING = ".staging"
META = "dataset.json"
# A line for each game of a dataset from this package.
EPISODES = "episodes.jsonl"

# Judges' inputs identify a dataset; pictures of the same steps (tty_*, glyphs) do not.
CONTENT_ARRAYS = ("data/message", "data/blstats", "data/rewards", "info/score")

# Bytes that are hashed or checked at a time, so that a memory-mapped array is never read whole.
BLOCK_BYTES = 1 << 24


@dataclass(frozen=True)
class ArrayLayout:
    """Dtype and shape of data/NAME.npy.

    Attributes:
      steps: allowed shapes of one step, that of this package first.
      dtype: the dtype that this package writes.
      kinds: numpy kinds that are read: 'u' unsigned, 'i' signed, 'f' floating.
      itemsize: bytes of an entry that is read; None for any.
    """

    steps: tuple[tuple[int, ...], ...]
    dtype: str
    kinds: str
    itemsize: int | None = None

    def step_bytes(self) -> int:
        """Bytes of one step of one sub-sequence."""
        return int(np.prod(self.steps[0])) * np.dtype(self.dtype).itemsize


DATA_ARRAYS: Mapping[str, ArrayLayout] = {
    "message": ArrayLayout(((MESSAGE_BYTES,),), "uint8", "u", 1),
    # 27 numbers in NLE 1.x, 26 in NLE 0.9, which the published system plays.
    "blstats": ArrayLayout(((27,), (26,)), "int32", "iuf"),
    "tty_chars": ArrayLayout(((24, 80),), "uint8", "u", 1),
    "tty_colors": ArrayLayout(((24, 80),), "int8", "iu", 1),
    "rewards": ArrayLayout(((),), "float32", "iuf"),
    "glyphs": ArrayLayout(((21, 79),), "int16", "iu"),
}


def check_steps(name: str, where: object, array: np.ndarray) -> None:
    """Raises UserError, which names `where`, unless an array [pairs, 2, length, ...] of data/ has
    the step shape and dtype of its name.
    """
    expected = DATA_ARRAYS.get(name)
    if expected is None:
        # A user's own array may have any content.
        return
    if array.shape[3:] not in expected.steps:
        allowed = " or ".join(str(list(step)) for step in expected.steps)
        raise UserError(f"{where}: shape {array.shape}, expected {allowed} for one step")
    if array.dtype.kind not in expected.kinds or expected.itemsize not in (
        None,
        array.dtype.itemsize,
    ):
        raise UserError(f"{where}: dtype {array.dtype}, expected {expected.dtype}")


def array_digest(array: np.ndarray) -> str:
    """Digest of shape, dtype and content: 32 hexadecimal digits, the same on all machines."""
    digest = hashlib.blake2b(f"{array.shape} {array.dtype.str}\n".encode(), digest_size=16)
    flat = array.reshape(-1)
    block = max(1, BLOCK_BYTES // max(1, array.dtype.itemsize))
    for start in range(0, flat.size, block):
        digest.update(np.ascontiguousarray(flat[start : start + block]).view(np.uint8).data)
    return digest.hexdigest()


def combine_digests(digests: Mapping[str, str]) -> str:
    """Content hash of a dataset from its arrays' digests ('data/message': ...); absent arrays are
    left out.
    """
    text = "".join(
        f"{name} {digests[name]}\n" for name in sorted(CONTENT_ARRAYS) if name in digests
    )
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def first_not_finite(array: np.ndarray) -> int | None:
    """The first pair of an array [pairs, ...] with a NaN or infinity; None without one."""
    if array.dtype.kind != "f":
        return None
    rows = max(1, BLOCK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        bad = np.argwhere(~np.isfinite(array[start : start + rows]))
        if bad.size:
            return start + int(bad[0, 0])
    return None
