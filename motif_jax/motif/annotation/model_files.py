"""Identifies a model by the fingerprint of its folder, or the revision of its name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
# Small files besides the weights that answers depend on.
_SETTINGS = ("*.json", "*.jinja", "*.model", "*.txt")
# Of a file of weights a fingerprint reads: its ends, and blocks of what lies between.
_SAMPLE = 1 << 20
_BLOCK = 1 << 16
_BLOCKS = 64
# What this package reads of a model. Other programs may put more into the same folder of the hub's
# cache at any time.
READ_HERE = ("*.safetensors", "*.gguf", "*.json", "*.jinja")
_GGUF = ".gguf"


def is_path(model: str) -> bool:
    """Whether a model is given as a folder or a GGUF file rather than by name."""
    # A name on the hub has one slash at most: OWNER/NAME.
    looks_like_path = (
        model.startswith((".", "/", "~")) or model.endswith(_GGUF) or model.count("/") > 1
    )
    return looks_like_path or Path(model).exists()


def is_gguf(path: Path) -> bool:
    """Whether a path is a file that holds a whole model: weights, settings and tokenizer."""
    return path.suffix == _GGUF and path.is_file()


def short_name(model: str) -> str:
    """A model's name; the last part of a folder or file, so that it may be moved."""
    return Path(model).name.removesuffix(".gguf") if is_path(model) else model


def _weights(folder: Path, patterns: Sequence[str] = _WEIGHTS) -> list[Path]:
    """The files of weights that match one of `patterns` and are not empty, in the order of their
    names.
    """
    paths = [path for pattern in _WEIGHTS if pattern in patterns for path in folder.glob(pattern)]
    return sorted(path for path in paths if path.stat().st_size)


def revision(model: str, requested: str | None, download_dir: str | None = None) -> str:
    """The version of a model or tokenizer, which becomes part of what an answer depends on.

    A folder's version is its fingerprint, a name's the commit of `requested` (a branch, a tag or a
    commit; None: main).
    """
    if is_path(model):
        return fingerprint(Path(model))
    if requested and re.fullmatch(r"[0-9a-f]{40}", requested):
        return requested
    return _commit(model, requested or "main", download_dir)


def fingerprint(folder: Path, patterns: Sequence[str] = (*_WEIGHTS, *_SETTINGS)) -> str:
    """A digest of a folder's settings and weights, whose names match one of `patterns`, or of a
    GGUF file.

    Of weights the size counts, the first and the last megabyte, and blocks evenly spread over the
    rest: to read 140 GB would take minutes. A training changes most tensors, and so some of the
    blocks.
    """
    state = hashlib.blake2b(digest_size=16)
    if is_gguf(folder):
        _add_weights(state, folder)
        return state.hexdigest()
    # A set, as a file may match two patterns.
    settings = {
        path for pattern in _SETTINGS if pattern in patterns for path in folder.glob(pattern)
    }
    for path in sorted(settings):
        state.update(f"{path.name} {path.stat().st_size}\n".encode())
        state.update(path.read_bytes())
    for path in _weights(folder, patterns):
        _add_weights(state, path)
    return state.hexdigest()


def _add_weights(state: hashlib.blake2b, path: Path) -> None:
    """Adds name, size, first and last megabyte of a file, and blocks of the rest, to a digest."""
    size = path.stat().st_size
    state.update(f"{path.name} {size}\n".encode())
    with open(path, "rb") as file:
        state.update(file.read(_SAMPLE))
        file.seek(max(0, size - _SAMPLE))
        state.update(file.read(_SAMPLE))
        for number in range(_BLOCKS):
            file.seek(size * number // _BLOCKS)
            state.update(file.read(_BLOCK))


def _commit(model: str, requested: str, download_dir: str | None) -> str:
    """The commit that a branch or tag means on the hub now, or in the local cache if the hub cannot
    be reached.
    """
    import huggingface_hub
    from huggingface_hub import constants

    try:
        commit = huggingface_hub.HfApi().model_info(model, revision=requested, timeout=20).sha
    except Exception:  # the hub's client raises errors of several libraries
        cache = Path(download_dir or constants.HF_HUB_CACHE)
        reference = cache / f"models--{model.replace('/', '--')}" / "refs" / requested
        if not reference.exists():
            raise
        return reference.read_text(encoding="utf-8").strip()
    return str(commit)
