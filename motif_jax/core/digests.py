"""Digests of files and tensors: what was read before is known again by its content."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping

import numpy as np
from safetensors.numpy import save


def of_bytes(data: bytes) -> str:
    """The digest of `data`: 32 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def of_file(path: str | os.PathLike[str]) -> str:
    """`of_bytes` of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def of_input(path: str | os.PathLike[str]) -> str:
    """`of_file`, computed again only where the file's size or modification time changed."""
    about = os.stat(path)
    return _of_version(os.fspath(path), about.st_size, about.st_mtime_ns)


@functools.cache
def _of_version(path: str, *version: int) -> str:
    return of_file(path)


def of_tensors(text: str, tensors: Mapping[str, np.ndarray]) -> str:
    """The digest of a text and named tensors with their dtypes and shapes."""
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        array = tensors[name]
        # The same bytes in another shape or dtype are other numbers.
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def safetensors_of(name: str, text: str, tensors: Mapping[str, np.ndarray]) -> bytes:
    """A safetensors file of contiguous arrays, with `text` under `name` and the digest of all in
    its header.

    Equal inputs give equal bytes, although the library orders a header's texts at random.
    """
    data = save(dict(tensors), {name: text, "digest": of_tensors(text, tensors)})
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    sorted_header = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    sorted_header += b" " * (-len(sorted_header) % 8)  # the format aligns tensors to 8 bytes
    return len(sorted_header).to_bytes(8, "little") + sorted_header + data[8 + size :]
