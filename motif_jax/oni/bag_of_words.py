"""Similarity of a message's words to those of the goal (ONI's baseline without a language model).

Vectors of words are read from a text file in fastText's form, or hashed from the letters of the
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
from typing import BinaryIO, Protocol, Self

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import locks, resources, text_bytes
from motif_jax.core.errors import UserError
from motif_jax.core.files import new_array, sync
from motif_jax.core.progress import Progress
from motif_jax.motif.annotation.prompts import load_prompt, prompt_path
from motif_jax.motif.reward.frozen_text import FrozenTextReward
from motif_jax.rl.config import AgentReward
from motif_jax.rl.intrinsic import RewardSetup

HASHED_SIZE = 1024
# Lengths of the runs of letters that are hashed.
_RUN_LENGTHS = range(3, 6)
_PUNCTUATION = string.punctuation.encode()
# Words between two updates of the progress line.
_BLOCK = 4096


class WordVectors(Protocol):
    """Vectors of words."""

    description: str

    def of(self, word: bytes) -> np.ndarray | None:
        """The vector float32 [size] of a token in UTF-8, None where there is none."""


def _bare(word: bytes) -> bytes:
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
        letters = _bare(word)
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
    a line is not of this form.
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
        return self._find(_bare(word)) if vector is None else vector

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
    status = path.stat()
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
    count, size = map(int, file.readline().split())
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
    """Yields the words with their vectors; UserError where a line is of another form."""
    for number in range(2, count + 2):
        word, _, numbers = file.readline().rstrip(b" \r\n").partition(b" ")
        vector = np.array(numbers.split(b" "), np.float32)
        # One number would be taken for each of `size`.
        if vector.size != size or not np.isfinite(vector).all():
            raise UserError(
                f"config.reward.vectors={path}: line {number} of {count + 1} is not a word and {size} finite numbers"
            )
        yield word, vector


class BagOfWordsReward(FrozenTextReward):
    """Kind 'bag_of_words': cos(e(message), e(goal)) where it is above `similarity`, else 0.

    e sums the vectors of a text's tokens, which white space separates. A file of vectors, named by
    `vectors`, is asked for a token with its case and punctuation, and then without;
    without a file vectors are hashed, of small letters without punctuation. Tokens without a vector
    do not count; a text without any gives 0. `goal` is a goal of the prompts, or a sentence.
    """

    def __init__(self, vectors: WordVectors, setup: RewardSetup) -> None:
        super().__init__(setup)
        self._vectors = vectors
        self._threshold = float(setup.config.similarity)
        # Tokens of the distinct texts so far, and those among them that have no vector.
        self.tokens = 0
        self.unknown = 0

        goal = text_bytes.encode(goal_sentence(setup.config.goal))
        goal_tokens, goal_vectors = self._vectors_of(goal)
        embedding = _sum(goal_vectors)
        norm = np.linalg.norm(embedding)
        if not norm > 0:
            raise UserError(
                f"config.reward.goal={setup.config.goal}: none of its words has a vector in {setup.config.vectors}"
            )
        self._goal = embedding / norm
        missing = goal_tokens - len(goal_vectors)
        self.description = f"likeness to the goal, {vectors.description}; {missing} of the goal's {goal_tokens} tokens have none"

    @classmethod
    def check(cls, config: AgentReward) -> None:
        value = config.similarity
        allowed = "at least -1 and below 1, which no cosine exceeds"
        is_cosine = checks.is_finite(value) and -1 <= value < 1
        checks.require(is_cosine, "reward.similarity", value, allowed)
        goal_sentence(config.goal)
        _open(config.vectors)

    @classmethod
    def files(cls, config: AgentReward) -> tuple[Path, ...]:
        return (Path(config.vectors),) if config.vectors else ()

    @classmethod
    def make(cls, setup: RewardSetup) -> Self:
        return cls(_open(setup.config.vectors), setup)

    def value(self, text: bytes) -> float:
        num_tokens, vectors = self._vectors_of(text)
        self.tokens += num_tokens
        self.unknown += num_tokens - len(vectors)
        embedding = _sum(vectors)
        norm = float(np.linalg.norm(embedding))
        # `_goal` has the norm 1.
        cosine = float(embedding @ self._goal) / norm if norm > 0 else 0.0
        return cosine if cosine > self._threshold else 0.0

    def _vectors_of(self, text: bytes) -> tuple[int, list[np.ndarray]]:
        """The number of a text's tokens, and the vectors float32 [size] of those that have one."""
        tokens = text_bytes.decode(text).split()
        vectors = [self._vectors.of(token.encode()) for token in tokens]
        return len(tokens), [vector for vector in vectors if vector is not None]

    def metrics(self) -> dict[str, float]:
        return {"reward/unknown_tokens": self.unknown / max(1, self.tokens)}


def _sum(vectors: list[np.ndarray]) -> np.ndarray:
    """The sum float32 [size] of vectors; [0] without any, which any vector can be multiplied
    with.
    """
    if not vectors:
        return np.zeros(1, np.float32)
    return np.asarray(np.sum(vectors, axis=0, dtype=np.float32))


# Cached, as `check` and `make` read the same vectors.
@functools.lru_cache(maxsize=1)
def _open(path: str | None) -> WordVectors:
    return FileVectors(path) if path else HashedVectors()


def goal_sentence(goal: str) -> str:
    """The sentence that `config.reward.goal` means: a goal of the pair prompts, or the text
    itself.
    """
    if len(goal.split()) > 1:
        return goal
    return load_prompt(prompt_path("default", ""), goal, "verdict").goal
