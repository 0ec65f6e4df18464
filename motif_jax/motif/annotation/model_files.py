"""Identifies a model by the fingerprint of its folder, or the revision of its name."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import safetensors

from motif_jax.core.errors import UserError, first_line

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
# Small files besides the weights that answers depend on.
_SETTINGS = ("*.json", "*.jinja", "*.model", "*.txt")
_SAMPLE = 1 << 20
_GGUF, _GGUF_MAGIC = ".gguf", b"GGUF"


def is_folder(model: str) -> bool:
    """Whether a model is given as a folder or a GGUF file rather than by name."""
    is_path = model.startswith((".", "/", "~")) or model.endswith(_GGUF) or model.count("/") > 1
    return is_path or Path(model).exists()


def check_model(model: str, key: str) -> None:
    """Raises UserError unless `model` is a name, a GGUF file, or a folder with a config, weights and a tokenizer."""
    if not model:
        raise UserError(f"config.{key}: give the name of a chat model, or its folder")
    if is_folder(model) and (fault := _fault(Path(model))):
        raise UserError(f"config.{key}={model}: {fault}")


def _fault(folder: Path) -> str | None:
    if folder.suffix == _GGUF and not folder.is_dir():
        return _fault_of_file(folder)
    if not folder.is_dir():
        return "there is no such folder"
    if not (folder / "config.json").is_file():
        return "not a model folder, it has no config.json"
    if not _weights(folder):
        return f"the folder has no weights ({', '.join(_WEIGHTS)})"
    for path in folder.glob("*.safetensors"):
        try:
            with safetensors.safe_open(path, "numpy"):  # compares the file's size with its header's
                pass
        except (OSError, safetensors.SafetensorError):
            return f"{path.name} is cut off or damaged"
    return None if any(folder.glob("tokenizer*")) else "the folder has no tokenizer"


def _fault_of_file(path: Path) -> str | None:
    if not path.is_file():
        return "there is no such file"
    with open(path, "rb") as file:
        begins_well = file.read(len(_GGUF_MAGIC)) == _GGUF_MAGIC
    return None if begins_well else "is no GGUF file, or is damaged"


def is_gguf(path: Path) -> bool:
    """Whether a path is a file that holds a whole model: weights, settings and tokenizer."""
    return path.suffix == _GGUF and path.is_file()


def short_name(model: str) -> str:
    """A model's name; the last part of a folder or file, so that it may be moved."""
    return Path(model).name.removesuffix(".gguf") if is_folder(model) else model


def _weights(folder: Path) -> list[Path]:
    return sorted(path for pattern in _WEIGHTS for path in folder.glob(pattern) if path.stat().st_size)


def revision(model: str, wanted: str | None, download_dir: str | None = None, key: str = "vllm.model") -> str:
    """The version of a model or tokenizer (`key`): the commit for a name, the fingerprint for a folder."""
    if is_folder(model):
        return fingerprint(Path(model))
    if wanted and re.fullmatch(r"[0-9a-f]{40}", wanted):
        return wanted
    return _commit(model, wanted or "main", download_dir, key)


def fingerprint(folder: Path) -> str:
    """A digest of settings, and of size, first and last megabyte of weights: to read 140 GB would take minutes."""
    state = hashlib.blake2b(digest_size=16)
    if is_gguf(folder):
        _add_weights(state, folder)
        return state.hexdigest()
    for path in sorted({path for pattern in _SETTINGS for path in folder.glob(pattern)}):
        state.update(f"{path.name} {path.stat().st_size}\n".encode())
        state.update(path.read_bytes())
    for path in _weights(folder):
        _add_weights(state, path)
    return state.hexdigest()


def _add_weights(state: hashlib.blake2b, path: Path) -> None:
    size = path.stat().st_size
    state.update(f"{path.name} {size}\n".encode())
    with open(path, "rb") as file:
        state.update(file.read(_SAMPLE))
        file.seek(max(0, size - _SAMPLE))
        state.update(file.read(_SAMPLE))


def _commit(model: str, wanted: str, download_dir: str | None, key: str) -> str:
    import huggingface_hub
    from huggingface_hub import constants

    try:
        found = huggingface_hub.HfApi().model_info(model, revision=wanted, timeout=20).sha
    except Exception as error:  # the hub's client raises errors of several libraries
        cache = Path(download_dir or constants.HF_HUB_CACHE)
        reference = cache / f"models--{model.replace('/', '--')}" / "refs" / wanted
        try:
            return reference.read_text(encoding="utf-8").strip()
        except OSError:
            own = "tokenizer_revision in config.vllm.engine"
            hint = f"or the 40 digits of a commit as {'config.vllm.revision' if key == 'vllm.model' else own}"
            raise UserError(
                f"config.{key}={model}: neither the hub nor the local cache knows it at revision {wanted} "
                f"({first_line(error)}); give the folder of a downloaded {key.rpartition('.')[2]}, {hint}"
            ) from None
    return str(found)
