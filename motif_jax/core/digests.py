"""Digests of files, which reveal flipped bits, cut-off and lost files before they are read."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json, sync

FILE = "digests.json"
_ALGORITHM = "blake2b"


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


def seal(folder: Path) -> None:
    """Writes the digests of all files below `folder` into it; all of them have reached the disk
    when this returns.
    """
    digests = {}
    for path in sorted(folder.rglob("*")):
        sync(path)
        if path.is_file():
            digests[path.relative_to(folder).as_posix()] = of_file(path)
    # The last file of all: a folder without it is not whole.
    atomic_write_json(folder / FILE, {_ALGORITHM: digests})


def of_sealed(folder: Path) -> str | None:
    """Digest of a sealed folder without reading its files; None if it was never sealed."""
    return of_file(folder / FILE) if (folder / FILE).exists() else None


def damage(folder: Path, part: str = "") -> str | None:
    """The damage of a sealed folder's files whose path begins with `part`, None if they are intact;
    later files are ignored.
    """
    if not (folder / FILE).exists():
        return f"{FILE} is missing"
    try:
        digests = read_json(folder / FILE, "", keys=[_ALGORITHM])[_ALGORITHM]
        names = [name for name in digests if name.startswith(part)]
    except (UserError, AttributeError, TypeError):
        return f"{FILE} is damaged"
    for name in names:
        try:
            if of_file(folder / name) != digests[name]:
                return f"{name} is not as it was written"
        except (OSError, ValueError) as error:  # ValueError: no file can have this name
            return f"{name} cannot be read: {getattr(error, 'strerror', error)}"
    # An empty list would vouch for everything.
    return None if digests else f"{FILE} is damaged"
