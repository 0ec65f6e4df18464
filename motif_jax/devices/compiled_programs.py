"""Compiled programs that are kept on disk, so that a stage that starts again need not compile."""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path

import jax

_ENTRIES = "*-cache"
# Everything that is older was found whole before.
_LOOKED_AT = "looked_at"
# A clock of a file system shared by machines may be behind; seconds.
_SLACK = 600.0
_ZLIB = b"\x78"


def folder_of(value: str) -> Path | None:
    """The folder that a config's `compile_cache` means: 'auto' is in the user's cache folder, '' is none."""
    if value == "auto":
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(home) / "motif_jax" / "compiled"
    return Path(value) if value else None


def keep_in(folder: Path) -> None:
    """Has jax keep the programs of this process in `folder`, and find those that are there."""
    remove_torn(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def remove_torn(folder: Path) -> int:
    """Removes programs that a killed process wrote a part of; returns how many.

    jax writes an entry in place, warns of a torn one at every start, and never writes it anew, so that its program would
    be compiled each time. Only what was written since the last look is read. A folder that others keep, and that cannot be
    written here, is left as it is.
    """
    looked_at, removed = folder / _LOOKED_AT, 0
    with contextlib.suppress(OSError):
        since = looked_at.stat().st_mtime - _SLACK if looked_at.exists() else 0.0
        for path in [path for path in folder.glob(_ENTRIES) if _written(path) >= since]:
            if not _is_whole(path):
                path.unlink(missing_ok=True)
                removed += 1
        if folder.is_dir():
            looked_at.touch()
    return removed


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_whole(path: Path) -> bool:
    """Whether an entry of this library's form is complete; other forms (zstd, where that is installed) end with no mark and count as whole."""
    try:
        content = path.read_bytes()
    except OSError:  # it has gone, or is nobody's business here
        return True
    if not content:
        return False
    if not content.startswith(_ZLIB):
        return True
    stream = zlib.decompressobj()
    try:
        stream.decompress(content)
    except zlib.error:
        return False
    return stream.eof
