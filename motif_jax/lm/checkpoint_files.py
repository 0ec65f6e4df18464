"""Reads the tensors of a checkpoint folder by name: from one safetensors file, from shards and
their index, or from a GGUF file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open

from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json
from motif_jax.lm.gguf import folder as gguf_folder
from motif_jax.lm.gguf.tensors import GgufTensors

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# Numbers that are converted at a time.
NUMBERS_AT_ONCE = 1 << 22
# Weights in other forms, by the pattern of their files, and why they are not read.
_OTHER_FORMS = {
    "*.bin": "is a pickle, which is never opened here",
    "model-*-of-*.safetensors": f"is a shard, and its {INDEX} is not there",
    "adapter_model.safetensors": "has low-rank additions alone: merge them into their model in peft with merge_and_unload()",
}

_NAMED_FOLDERS: set[Path] = set()  # those whose unread shards were printed


class NamedTensors(Protocol):
    """Tensors under transformers' names, with or without the model's prefix, see `Tensors`."""

    @property
    def names(self) -> list[str]: ...

    def name_of(self, name: str) -> str | None: ...

    def find(self, name: str, dtype: Any = None) -> np.ndarray | None: ...

    def rows(self, name: str, start: int, stop: int) -> np.ndarray: ...

    def shape(self, name: str) -> tuple[int, ...] | None: ...

    def dtype(self, name: str) -> str | None: ...


def open_tensors(folder: str | Path) -> NamedTensors:
    """The tensors of a checkpoint folder, or of the GGUF file that it stands for (`gguf.folder`);
    errors as of `Tensors`.
    """
    file = gguf_folder.file_in(folder)
    return Tensors(folder) if file is None else GgufTensors(file)


class Tensors:
    """The tensors of a checkpoint folder, each read when it is asked for.

    Raises:
      UserError: there are no weights, a file cannot be read, or the index names a shard that is
        missing or holds another tensor. Pickles are not opened.

    Where a folder has one file and an index of shards, the one file is read, as transformers does:
    which of them is newer cannot be told from their times, since copies and downloads change those.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._files: dict[str, Any] = {}
        has_index = (self._folder / INDEX).is_file()
        if (self._folder / SINGLE).is_file():
            self._shard_of = dict.fromkeys(self._open(SINGLE).keys(), SINGLE)
            if has_index:
                self._name_unread_shards()
        elif has_index:
            self._shard_of = self._read_index()
        else:
            raise UserError(
                f"{folder} has no weights: {self._why_none()}; save it with save_pretrained(..., safe_serialization=True)"
            )

    @property
    def names(self) -> list[str]:
        """All names of the files, sorted."""
        return sorted(self._shard_of)

    def name_of(self, name: str) -> str | None:
        """The name of a tensor in the files, with or without the model's prefix; None if it is
        missing.
        """
        # 'transformer.wte.weight', or 'wte.weight' as in GPT-2's own file.
        for candidate in (name, name.partition(".")[2]):
            if candidate in self._shard_of:
                return candidate
        return None

    def find(self, name: str, dtype: Any = None) -> np.ndarray | None:
        """The tensor `name`, with or without the model's prefix, as an array of `dtype` (None: the
        file's); None if it is missing.
        """
        known = self.name_of(name)
        if known is None:
            return None
        path = self._folder / self._shard_of[known]
        shape = self.shape(known)
        try:
            # A handle of its own, which unmaps what was read when it is closed.
            with safe_open(path, framework="numpy") as file:
                if dtype is None or not shape:
                    tensor: np.ndarray = file.get_tensor(known)
                    return tensor if dtype is None else np.asarray(tensor, dtype)
                return _read_rows(file.get_slice(known), np.empty(shape, dtype))
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} is not a safetensors file: {error}") from None

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows of the tensor that `find` reads; KeyError if it is missing."""
        known = self.name_of(name)
        if known is None:
            raise KeyError(name)
        tensor = self._slice(known)
        return tensor[start : min(stop, tensor.get_shape()[0])]

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of the tensor that `find` reads; None if it is missing."""
        known = self.name_of(name)
        return None if known is None else tuple(self._slice(known).get_shape())

    def dtype(self, name: str) -> str | None:
        """The dtype of the tensor that `find` reads, in the words of safetensors (F32, BF16, I8);
        None if it is missing.
        """
        known = self.name_of(name)
        return None if known is None else str(self._slice(known).get_dtype())

    def _slice(self, known: str) -> Any:
        return self._open(self._shard_of[known]).get_slice(known)

    def _why_none(self) -> str:
        for pattern, reason in _OTHER_FORMS.items():
            names = sorted(path.name for path in self._folder.glob(pattern))
            if names:
                return f"{names[0]} {reason}"
        return f"no {SINGLE}"

    def _name_unread_shards(self) -> None:
        """Prints, once a folder, which shards are not read since the one file is."""
        unread = sorted(path.name for path in self._folder.glob("model-*-of-*.safetensors"))
        if unread and self._folder.resolve() not in _NAMED_FOLDERS:
            _NAMED_FOLDERS.add(self._folder.resolve())
            print(
                f"{self._folder}: {SINGLE} is read, and {INDEX} with {', '.join(unread)} is not; remove {SINGLE} to read the shards",
                flush=True,
            )

    def _read_index(self) -> dict[str, str]:
        path = self._folder / INDEX
        try:
            shard_of = parse_json(path.read_bytes())["weight_map"]
            if not isinstance(shard_of, dict) or not all(
                isinstance(shard, str) for shard in shard_of.values()
            ):
                raise TypeError("weight_map does not say which file each tensor is in")
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} cannot be read: {error!r}") from None
        shards = sorted(set(shard_of.values()))
        for shard in shards:
            # A name with a path would read a file outside the folder.
            if Path(shard).name != shard or not (self._folder / shard).is_file():
                raise UserError(f"{path} names {shard}, which is not in the folder")
        # Only the shards' headers are read.
        held = {shard: set(self._open(shard).keys()) for shard in shards}
        misplaced = [name for name, shard in shard_of.items() if name not in held[shard]]
        if misplaced:
            first = misplaced[0]
            more = (
                f", and {len(misplaced) - 1} more are not where it says"
                if len(misplaced) > 1
                else ""
            )
            raise UserError(
                f"{path} says that tensor {first} is in {shard_of[first]}, which does not hold it{more}: "
                "save the model again, or restore its index"
            )
        # Tensors that a shard holds and the index does not name count, too, as they do for
        # transformers.
        unnamed = {name: shard for shard in shards for name in held[shard]}
        return {**unnamed, **shard_of}

    def _open(self, shard: str) -> Any:
        if shard not in self._files:
            try:
                self._files[shard] = safe_open(self._folder / shard, framework="numpy")
            except (SafetensorError, OSError) as error:
                raise UserError(
                    f"{self._folder / shard} is not a safetensors file: {error}"
                ) from None
        return self._files[shard]


def _read_rows(part: Any, array: np.ndarray) -> np.ndarray:
    """Fills `array` [rows, ...] from a slice of a file, some rows at a time: a table would be there
    twice, in both dtypes.
    """
    step = max(1, NUMBERS_AT_ONCE // max(1, array[:1].size))
    for row in range(0, len(array), step):
        stop = min(row + step, len(array))
        array[row:stop] = part[row:stop]
    return array
