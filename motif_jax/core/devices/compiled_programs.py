"""Keeps compiled programs on disk, so that a restarted stage need not compile."""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path

import jax

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ZLIB = b"\x78"


def folder_of(value: str) -> Path | None:
    """The folder of a config's `compile_cache`: 'auto' is in the user's cache folder, '' is None."""
    if value == "auto":
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(home) / "motif_jax" / "compiled"
    return Path(value) if value else None


def keep_in(folder: Path) -> None:
    """Makes jax use `folder` as this process's compilation cache."""
    remove_torn(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def remove_torn(folder: Path) -> None:
    """Removes programs that a killed process wrote in part: jax warns of each at every start and never rewrites it.

    A kill ends a write at the end of a page, so only files of whole pages are read. What cannot be read or removed stays.
    """
    for path in folder.glob("*-cache"):
        with contextlib.suppress(OSError):
            if path.stat().st_size % _PAGE == 0 and not _is_whole(path.read_bytes()):
                path.unlink()


def _is_whole(content: bytes) -> bool:
    """Whether an entry in zlib's format is complete; True for other formats (zstd, where installed)."""
    if content and not content.startswith(_ZLIB):
        return True
    stream = zlib.decompressobj()
    with contextlib.suppress(zlib.error):
        stream.decompress(content)
    return stream.eof
