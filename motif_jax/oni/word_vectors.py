"""Vectors of words, read from a text file in fastText's form or hashed from the letters of the
word.
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import math
import shutil
import string
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from motif_jax.core import locks, resources
from motif_jax.core.errors import UserError
from motif_jax.core.files import new_array, sync
from motif_jax.core.progress import Progress

HASHED_SIZE = 1024
# Lengths of the runs of letters that are hashed.
_RUN_LENGTHS = range(3, 6)
_PUNCTUATION = string.punctuation.encode()
# Words between two updates of the progress line.
_BLOCK = 4096
# Bytes of the longest word, and of the longest number with the blank before it.
_LONGEST_WORD = 1024
_LONGEST_NUMBER = 64


class WordVectors(Protocol):
    """Vectors of words."""

    description: str

    def of(self, word: bytes) -> np.ndarray | None:
        """The vector float32 [size] of a token in UTF-8, None where there is none."""


def bare(word: bytes) -> bytes:
    """The word without punctuation around it, in lower case."""
    return word.strip(_PUNCTUATION).decode("utf-8", "replace").lower().encode()


class HashedVectors:
    """A vector for any word, from its runs of three to five letters: words with similar spelling
    have similar vectors.

    Each run, and the word itself, adds 1 or -1 at one index, both chosen by its hash. The vectors
    know nothing of what words mean. Tokens of punctuation alone have none.
    """

    description = f"hashed letters, {HASHED_SIZE} numbers a word"

    @functools.lru_cache(maxsize=1 << 14)  # noqa: B019
    def of(self, word: bytes) -> np.ndarray | None:
        letters = bare(word)
        if not letters:
            return None
        # Marks of begin and end, so that "old" differs from the end of "gold".
        marked = b"<" + letters + b">"
        runs = {marked}
        for length in _RUN_LENGTHS:
            for start in range(len(marked) - length + 1):
                runs.add(marked[start : start + length])

        vector = np.zeros(HASHED_SIZE, np.float32)
        for run in runs:
            digest = int.from_bytes(hashlib.blake2b(run, digest_size=8).digest(), "little")
            # The low bits choose the index, the highest one the sign.
            vector[digest % HASHED_SIZE] += 1.0 if digest >> 63 else -1.0
        return vector


class FileVectors:
    """The vectors of a text file: its first line has the number of words and the size, each other a
    word and its numbers.

    The file is read once, into arrays in the user's cache that are memory-mapped from then on: 2
    million words of 300 numbers take minutes once and no memory. Words are known by 64-bit hashes.
    A token that the file does not have is looked up as the bare lower-case word. Raises UserError:
    the file is not there or not of this form; the line is named.
    """

    def __init__(self, path: str | Path) -> None:
        folder = _cache_folder(Path(path))
        if not folder.exists():
            convert(Path(path), folder)
        self._vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        self._keys = np.load(folder / "keys.npy", mmap_mode="r")
        self._rows = np.load(folder / "rows.npy", mmap_mode="r")
        count, size = self._vectors.shape
        self.description = f"{count:,} vectors of {size} numbers, {path}"

    def of(self, word: bytes) -> np.ndarray | None:
        vector = self._find(word)
        return self._find(bare(word)) if vector is None else vector

    def _find(self, word: bytes) -> np.ndarray | None:
        key = _key(word)
        # The keys are sorted, and lie on the disk: a search reads few pages.
        index = int(np.searchsorted(self._keys, key))
        if index == len(self._keys) or self._keys[index] != key:
            return None
        return np.asarray(self._vectors[self._rows[index]])


def _key(word: bytes) -> np.uint64:
    """The hash by which a word is known."""
    return np.uint64(int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little"))


def _cache_folder(path: Path) -> Path:
    """The folder of the arrays of a file, which is another after the file was changed."""
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(
            f"config.reward.vectors={path}: {error.strerror}; give a text file of word vectors"
        ) from None
    if not path.is_file():
        raise UserError(f"config.reward.vectors={path}: must be a text file of word vectors")
    identity = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
    name = hashlib.blake2b(identity.encode(), digest_size=12).hexdigest()
    return resources.cache_folder("vectors") / name


def convert(path: Path, folder: Path) -> None:
    """Writes the arrays of a text file into `folder`, which appears only when they are whole.

    Another process that converts the same file is waited for. What a killed one left is removed.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    with locks.FolderLock(folder.parent, f".{folder.name}.lock", patience=math.inf):
        if folder.exists():
            return
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            with open(path, "rb") as file:
                has_mark = file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
                if not has_mark:
                    file.seek(0)
                _write_arrays(file, path, partial)
            # On the disk before the rename, which makes the folder valid.
            for array_path in partial.iterdir():
                sync(array_path)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _write_arrays(file: BinaryIO, path: Path, folder: Path) -> None:
    """Writes vectors in the file's order; keys, sorted; and the row of each key."""
    # The limit is for a file that is not of this form, and has no line ends.
    header = file.readline(100).split()
    if len(header) != 2 or not all(part.isdigit() and int(part) > 0 for part in header):
        raise UserError(
            f"config.reward.vectors={path}: line 1 must hold the number of words and the size of their vectors"
        )
    count = int(header[0])
    size = int(header[1])
    vectors = new_array(folder / "vectors.npy", np.float32, (count, size))
    keys = np.empty(count, np.uint64)
    with Progress(count, "words", "vectors") as progress:
        for row, (word, vector) in enumerate(_lines(file, path, count, size)):
            vectors[row] = vector
            keys[row] = _key(word)
            if row % _BLOCK == 0:
                progress.update(row)
        progress.update(count)
    vectors.flush()
    order = np.argsort(keys, kind="stable")
    np.save(folder / "keys.npy", keys[order])
    np.save(folder / "rows.npy", order)


def _lines(file: BinaryIO, path: Path, count: int, size: int) -> Iterator[tuple[bytes, np.ndarray]]:
    """Yields the words with their vectors. Raises UserError: a line is of another form, or there
    are more of them.
    """
    # A file without line ends would be read into memory whole; a line that is cut here has too few
    # numbers.
    longest = _LONGEST_WORD + size * _LONGEST_NUMBER
    for number in range(2, count + 2):
        word, _, numbers = file.readline(longest).rstrip(b" \r\n").partition(b" ")
        try:
            vector = np.array(numbers.split(b" "), np.float32)
        except ValueError:
            vector = np.empty(0, np.float32)
        if not word or vector.size != size or not np.isfinite(vector).all():
            raise UserError(
                f"config.reward.vectors={path}: line {number} of {count + 1} is not a word and {size} finite numbers"
            )
        yield word, vector
    if file.read(1):
        raise UserError(
            f"config.reward.vectors={path}: it has more than the {count:,} words of its first line"
        )
