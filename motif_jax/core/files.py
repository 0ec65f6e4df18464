"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np

from motif_jax.core.errors import UserError, causes, first_line

_TAKE_OUT = "take out that line (its content is lost), or restore a copy of the file"
# What numpy may raise for a file that holds no array or archive of arrays.
NO_ARRAY = (
    OSError, ValueError, EOFError, SyntaxError, TokenError, KeyError, TypeError, NotImplementedError, OverflowError, MemoryError,
    RecursionError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
# Errors of a path that exists and cannot be used.
UNUSABLE = (
    errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG, errno.EIO,
)  # fmt: skip
# Errors of a full disk, a full quota, or the process's limit of a file (ulimit -f).
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The process's umask. It can only be read by setting it, so this is done once, before there are
# threads.
_UMASK = os.umask(0)
os.umask(_UMASK)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Adds `path` to an OSError of the block, since a failing write names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def regular_file(path: str, flags: int) -> int:
    """The `opener` of `open` for untrusted places. Raises UserError for a FIFO, a device, or a link
    to be written through.
    """
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    # Without blocking: a FIFO would wait for its other end.
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if writes else 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        # ELOOP: a link, by O_NOFOLLOW. ENXIO: a FIFO to write into that nobody reads.
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
    else:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        # Reading opens a folder, too; `open` itself would refuse it by this error.
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise UserError(
        f"{path} is not a regular file but a link, a FIFO or a device: remove it, or choose another folder"
    )


def load_array(path: str | os.PathLike[str], mapped: bool = False) -> np.ndarray:
    """The array of an untrusted .npy file. Raises FileNotFoundError, or ValueError: it holds no
    array.
    """
    try:
        # numpy would wait for the other end of a FIFO.
        if os.path.exists(path) and not os.path.isfile(path):
            raise ValueError("not a regular file")
        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except FileNotFoundError:
        raise
    except NO_ARRAY as error:
        # numpy may quote a header of any length
        raise ValueError(first_line(error)[:200]) from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError("an archive of arrays, not one array")
    return array


def new_array(path: str | os.PathLike[str], dtype: Any, shape: tuple[int, ...]) -> np.memmap:
    """Makes a memory-mapped .npy file. Raises OSError without room on the disk, where a later write
    would end the process.
    """
    with naming(path):
        # numpy opens the file by its name, and would write through a link.
        open(path, "ab", opener=regular_file).close()
        array = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)
        with open(path, "r+b", opener=regular_file) as file:
            # The new file is one hole: it takes its room on the disk now, not as it is filled.
            size = os.fstat(file.fileno()).st_size
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                error.strerror = f"{error.strerror}, {size / 1e6:,.1f} MB are needed for it"
                raise
    return array


def full_disk(error: BaseException | None) -> OSError | None:
    """The error of a full disk among `error` and its causes, None without one."""
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.errno in NO_ROOM:
            return cause
    return None


def system_error(error: BaseException, folder: str | os.PathLike[str]) -> str | None:
    """The line for a system error that the user can put right, else None; names `folder` where the
    error names no file.
    """
    full = full_disk(error)
    if full is not None:
        path = Path(full.filename or folder).absolute()
        free = ""
        if full.errno == errno.ENOSPC:
            # The file, or even its folder, may not exist.
            existing = next(parent for parent in (path, *path.parents) if parent.is_dir())
            free = f" ({shutil.disk_usage(existing).free / 1e6:,.1f} MB are free there)"
        return (
            f"{path} cannot be written: {full.strerror}{free}; what was saved before is kept: make room, and the same command "
            "continues"
        )
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"a path is longer than this system allows: {first_line(error)}"
    if isinstance(error, OSError) and error.errno in UNUSABLE and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    return None


def share(path: str | os.PathLike[str]) -> None:
    """Gives a file the rights of any new one; some libraries make theirs private."""
    os.chmod(path, 0o666 & ~_UMASK)


def sync(path: Path) -> None:
    """Returns when a file, or a folder's list of names, has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replaced_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a path beside `path` to write to; that file takes its place when the block ends well.

    The data reach the disk before the rename and the rename before the return, so that a machine
    that dies at any moment leaves the old file or the new one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own for each writer, in a form that `remove_temporaries` knows.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with naming(path):
            yield part
            sync(part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync(path.parent)


def atomic_write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes `data` to `path`, creating its folder; readers see the old content or the new one."""
    with replaced_file(path) as part:
        part.write_bytes(data)


def atomic_write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes UTF-8 as `atomic_write_bytes` does."""
    atomic_write_bytes(path, text.encode())


def atomic_write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes indented JSON with sorted keys as `atomic_write_bytes` does; null for infinities and
    NaN.
    """
    text = json.dumps(finite(value), indent=2, sort_keys=True, allow_nan=False)
    atomic_write_text(path, text + "\n")


def atomic_save_npy(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Writes a .npy file as `atomic_write_bytes` does."""
    with replaced_file(path) as part, open(part, "xb") as file:
        np.save(file, array, allow_pickle=False)


def read_json(
    path: str | os.PathLike[str], remedy: str, kind: type = dict, keys: Iterable[str] = ()
) -> Any:
    """The value of a JSON file, of type `kind`, an object with `keys`.

    Raises UserError: the file is not there, cannot be read, or holds something else; names it, and
    ends with `remedy`.
    """
    try:
        with open(path, "rb", opener=regular_file) as file:
            value = parse_json(file.read(), kind)
        missing = [key for key in keys if key not in value]
        if missing:
            raise ValueError(f"it has no {', '.join(missing)}")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): {remedy}") from None
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): {remedy}") from None
    return value


def read_text(path: str | os.PathLike[str], remedy: str) -> str:
    """The text of a file in UTF-8.

    Raises UserError: the file is not there, cannot be read, or is in another encoding; names it,
    and ends with `remedy`.
    """
    try:
        with open(path, "rb", opener=regular_file) as file:
            return file.read().decode("utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): {remedy}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is no text in UTF-8: {remedy}") from None


def finite(value: Any) -> Any:
    """`value` with None for infinities and NaN, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_line(value: Any) -> str:
    """`value` as a line of JSON, with null for infinities and NaN."""
    return json.dumps(finite(value), allow_nan=False) + "\n"


def append_lines(path: str | os.PathLike[str], keep: Callable[[str], bool]) -> IO[str]:
    """Opens a file of lines for appending, without those that `keep` rejects and without a last,
    torn one.

    Raises:
      UserError: a line is damaged, so that `keep` raises ValueError, LookupError, TypeError or
          RecursionError (deeply nested JSON); names file, line and remedy.
    """
    path = Path(path)
    lines_to_write: list[str] = []
    number = 0
    if path.exists():
        try:
            with open(path, "rb", opener=regular_file) as file:
                # After the last line end there is nothing, or what a kill has torn.
                lines = file.read().split(b"\n")[:-1]
            for number, line in enumerate(lines, start=1):  # noqa: B007 - reported below
                text = line.decode()
                if keep(text):
                    lines_to_write.append(f"{text}\n")
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise UserError(
                f"{path} is damaged in line {number} ({type(error).__name__}: {error}): {_TAKE_OUT}"
            ) from None
        atomic_write_text(path, "".join(lines_to_write))
    return open(path, "a", encoding="utf-8", opener=regular_file)


def read_json_lines(
    path: str | os.PathLike[str], whole_numbers: Iterable[str] = (), remedy: str = _TAKE_OUT
) -> Iterator[dict[str, Any]]:
    """Yields the object of each line; skips a last line that a kill has torn. A missing file has
    none.

    Raises UserError: a line before the last is damaged, or one of the keys `whole_numbers`, such as
    a step, is none; names file, line and `remedy`.
    """
    with contextlib.suppress(FileNotFoundError), open(path, "rb", opener=regular_file) as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                row = parse_json(line, dict)
                for key in whole_numbers:
                    # By the exact type: True is an int for `isinstance`.
                    if type(row.get(key)) is not int:
                        raise ValueError(f"{key} is not a whole number")
            except ValueError as error:
                raise UserError(f"{path} is damaged in line {number} ({error}): {remedy}") from None
            yield row


def parse_json(data: bytes | str, kind: type = object) -> Any:
    """The value in untrusted `data`. Raises ValueError, with the reason, where it holds none of
    this kind.
    """
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"no JSON: {error}" if data.strip() else "empty") from None
    if not isinstance(value, kind):
        raise ValueError(f"a JSON {type(value).__name__} in place of a {kind.__name__}")
    return value


@contextlib.contextmanager
def replaced_folder(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields an empty folder to write into, which takes the place of `target`, on the disk, when
    the block ends well.
    """
    target = Path(target)
    part = target.with_name(f"{target.name}.part")
    replaced = target.with_name(f"{target.name}.replaced")
    if replaced.exists() and not target.exists():
        # A writer was killed between the two moves below.
        os.replace(replaced, target)
    remove_replaced(target)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    yield part
    # Contents first: a machine that dies after the moves must not leave names of empty files.
    for path in (*part.rglob("*"), part):
        sync(path)
    # A rename cannot replace a folder that is not empty, so there are two moves.
    if target.exists():
        os.replace(target, replaced)
    os.replace(part, target)
    sync(target.parent)
    remove_replaced(target)


def remove_replaced(target: Path) -> None:
    """Removes what `replaced_folder` has replaced, which a kill may have left beside `target`."""
    if target.exists():
        # Without `target` it is the only copy left, which the next writer moves back.
        shutil.rmtree(target.with_name(f"{target.name}.replaced"), ignore_errors=True)


def remove_temporaries(folder: str | os.PathLike[str], pattern: str = ".*.tmp") -> None:
    """Removes the temporary files of this `pattern` that killed `atomic_*` writers left in
    `folder`.
    """
    for leftover in Path(folder).glob(pattern):
        leftover.unlink(missing_ok=True)
