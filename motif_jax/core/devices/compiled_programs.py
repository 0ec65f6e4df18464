"""Keeps compiled programs on disk, so that a second start of a command need not compile.

`keep` is called once for every command (motif_jax.launch). It sets jax's own environment variables
and imports no jax: commands that compute nothing start without it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import sys
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from motif_jax.core import resources

FOLDER_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
_SECONDS_VARIABLE = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
# Programs that compile faster are not worth a file.
_LEAST_SECONDS = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ZLIB = b"\x78"  # first byte of zlib's format
# Fewer saved seconds are not worth a line.
_LEAST_SAVED_SECONDS = 1.0


def programs_folder() -> Path | None:
    """The folder that the environment names for jax, or else one in the user's cache folder; None
    for a user without one, which a line says.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    try:
        return resources.cache_folder("compiled")
    except RuntimeError as error:
        print(f"compiled programs are not kept: {error}", file=sys.stderr, flush=True)
        return None


def keep() -> None:
    """Makes jax keep the programs of this process, and of those that it starts, in
    `programs_folder`.
    """
    folder = programs_folder()
    if folder is None:
        return
    remove_torn(folder)
    os.environ[FOLDER_VARIABLE] = str(folder)
    os.environ.setdefault(_SECONDS_VARIABLE, str(_LEAST_SECONDS))
    # jax reads its variables when it is imported.
    if "jax" in sys.modules:
        config = sys.modules["jax"].config
        config.update("jax_compilation_cache_dir", str(folder))
        config.update(
            "jax_persistent_cache_min_compile_time_secs", float(os.environ[_SECONDS_VARIABLE])
        )


def compile_together(lowered: Sequence[Any]) -> None:
    """Compiles lowered programs (`jax.stages.Lowered`) in parallel threads, for later calls of the
    same programs.
    """
    threads = min(len(lowered), os.cpu_count() or 1)
    # Threads suffice: XLA's compiler runs outside Python's lock.
    with concurrent.futures.ThreadPoolExecutor(max(1, threads)) as pool:
        compilations = [pool.submit(program.compile) for program in lowered]
        for compilation in compilations:
            compilation.result()  # raises the error of its thread


class ReusedPrograms:
    """Counts the programs that came from disk, and the seconds of compilation that this saved;
    thread safe.
    """

    def __init__(self) -> None:
        self.programs = 0
        self.saved_seconds = 0.0
        self._lock = threading.Lock()
        self._watches = False

    def watch(self) -> None:
        """Counts from now on, once jax is imported; a second call changes nothing."""
        if self._watches or "jax" not in sys.modules:
            return
        from jax import monitoring

        self._watches = True
        monitoring.register_event_duration_secs_listener(self._count)

    def _count(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/compilation_cache/compile_time_saved_sec":
            with self._lock:
                self.programs += 1
                self.saved_seconds += duration_secs

    def line(self) -> str | None:
        """What was saved, in one line; None where it is not worth one."""
        if self.saved_seconds < _LEAST_SAVED_SECONDS:
            return None
        return (
            f"compiled programs that came from {os.environ.get(FOLDER_VARIABLE)}: {self.programs}, "
            f"{self.saved_seconds:.0f} s of compilation saved"
        )


def remove_torn(folder: Path) -> None:
    """Removes programs that a killed process wrote in part: jax warns of each at every start and
    never rewrites it.

    A kill ends a write at the end of a page, so only files of whole pages are read. What cannot be
    read or removed stays.
    """
    for path in folder.glob("*-cache"):
        with contextlib.suppress(OSError):
            if path.stat().st_size % _PAGE == 0 and not _is_complete(path.read_bytes()):
                path.unlink()


def _is_complete(content: bytes) -> bool:
    """Whether an entry in zlib's format is complete; True for other formats (zstd, where
    installed).
    """
    if content and not content.startswith(_ZLIB):
        return True
    stream = zlib.decompressobj()
    with contextlib.suppress(zlib.error):
        stream.decompress(content)
    return stream.eof
