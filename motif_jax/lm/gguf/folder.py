"""The small folder that stands for a GGUF file: what the file's metadata say, as the files of a
checkpoint, and a link to the file.

Everything that takes a model's folder then takes the file. The tensors stay where they are. The
folder is in the user's cache and is made once for a version of the file.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from motif_jax.core import digests, resources, tokenizer_files
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, atomic_write_text
from motif_jax.lm import config, tokens
from motif_jax.lm.gguf import config_values, files, tokenizer

LINK = "model.gguf"
# Raised when a change here makes other files of the same GGUF file.
_FORM = 3


def folder_of(path: str | Path) -> Path:
    """The folder of a GGUF file, which is made where it is missing.

    Raises:
      UserError: the file cannot be read, or has an architecture, a tokenizer or tensors that are
          not supported.
    """
    # Not resolved: on the hub's copies the link has the name, and the file a digest.
    path = Path(path).absolute()
    state = path.stat()
    # Size and time in place of a digest of gigabytes; an edited file gets a folder of its own.
    version = digests.of_bytes(f"{_FORM} {path} {state.st_size} {state.st_mtime_ns}".encode())
    target = resources.cache_folder("gguf") / f"{path.stem}-{version}"
    if not target.is_dir():
        _make(path, target)
    return target


def _make(path: Path, target: Path) -> None:
    # Several processes may make it at once; the first one's stays.
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        part.mkdir(parents=True)
        values = config_values.config_values(path)
        backend = tokenizer.build(path)
        described = tokenizer.description(path, backend)
        atomic_write_text(part / tokens.FILE, backend.to_str())
        atomic_write_json(part / tokenizer_files.CONFIG_FILE, described.config)
        atomic_write_json(part / tokenizer_files.TOKENS_FILE, described.names)
        atomic_write_json(part / config.FILE, values)
        (part / LINK).symlink_to(path)
        try:
            # Fails where another process was first: its folder has the same content.
            part.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def only_file(folder: str | Path) -> Path | None:
    """The GGUF file of a folder that has no config.json; None for other folders.

    Raises:
      UserError: there are several: they are the same model packed in several ways, or parts of one.
    """
    paths = sorted(Path(folder).glob(f"*{files.SUFFIX}"))
    if not paths or (Path(folder) / config.FILE).exists():
        return None
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise UserError(f"{folder} has several GGUF files ({names}): give the path of one of them")
    return paths[0]


def resolved(path: str | Path) -> Path:
    """The folder itself, or the one that stands for the GGUF file that `path` is or holds; raises
    as `folder_of` and `only_file`.
    """
    file = Path(path) if files.is_gguf(path) else only_file(path)
    return Path(path) if file is None else folder_of(file)


def file_in(folder: str | Path) -> Path | None:
    """The GGUF file that a folder links to; None where it does not."""
    link = Path(folder) / LINK
    return link if files.is_gguf(link) else None
