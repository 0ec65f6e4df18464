"""Reads a dataset of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.core.files import load_array, read_json
from motif_jax.lm.token_data import layout

_KEYS = ("tokenizer", "vocab_size", "items", "tokens", "dtypes", "digests", "content")
_REMEDY = "write the dataset again"
# Greater counts do not fit the shape of an array (int64): they are damage.
_MAX_COUNT = 1 << 62


class TokensDataset:
    """An open dataset with memory-mapped arrays (see `layout`), `manifest` being the content of
    tokens.json.

    Raises UserError: the folder is not a dataset of tokens, or a file is missing, damaged or has
    another size than in the manifest.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        # Written last: without it the writer was killed, and the arrays may be cut off.
        path = self.folder / layout.MANIFEST
        if not path.is_file():
            raise UserError(
                f"{folder} is not a dataset of tokens: it has no {layout.MANIFEST}; give the folder tokens of a run"
            )
        self.manifest: dict[str, Any] = read_json(path, _REMEDY, keys=_KEYS)
        if not _is_valid(self.manifest):
            raise UserError(f"{path} is damaged (counts, dtypes or digests are invalid): {_REMEDY}")
        arrays = {name: self._map(name) for name in self.manifest["dtypes"]}
        self.tokens = arrays[layout.TOKENS]
        self.offsets = arrays[layout.OFFSETS]
        self.token_columns: Mapping[str, np.ndarray] = _columns(arrays, layout.TOKEN_COLUMNS)
        self.item_columns: Mapping[str, np.ndarray] = _columns(arrays, layout.ITEM_COLUMNS)

    def _map(self, name: str) -> np.ndarray:
        """The memory-mapped array of one file."""
        path = self.folder / f"{name}.npy"
        if name == layout.OFFSETS:
            rows = self.num_items + 1
        elif name.startswith(layout.ITEM_COLUMNS):
            rows = self.num_items
        else:
            rows = self.num_tokens
        try:
            # An empty array cannot be memory-mapped.
            array = load_array(path, mapped=rows > 0)
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}): {_REMEDY}") from None
        dtype = self.manifest["dtypes"][name]
        # The header of a mapped file is all that is read; `check_digests` reads the rest.
        if array.shape != (rows,) or array.dtype.str != dtype:
            raise UserError(
                f"{path} is {array.dtype} {list(array.shape)}, tokens.json says {dtype} [{rows}]: {_REMEDY}"
            )
        return array

    def check_digests(self) -> None:
        """Reads every file. Raises UserError: a file, which the error names, has changed."""
        for name, digest in self.manifest["digests"].items():
            path = self.folder / f"{name}.npy"
            if not path.is_file() or digests.of_file(path) != digest:
                raise UserError(f"{path} was changed after it was written: {_REMEDY}")

    @property
    def num_items(self) -> int:
        return self.manifest["items"]

    @property
    def num_tokens(self) -> int:
        return self.manifest["tokens"]

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each item, int64 [items]."""
        return np.diff(self.offsets)

    def item(self, index: int) -> np.ndarray:
        """The tokens of an item, [length]."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


def _is_valid(manifest: Mapping[str, Any]) -> bool:
    for key in ("items", "tokens", "vocab_size"):
        count = manifest[key]
        # A bool is an int, too.
        if type(count) is not int or not 0 <= count < _MAX_COUNT:
            return False
    if not isinstance(manifest["dtypes"], dict) or not isinstance(manifest["digests"], dict):
        return False
    return {layout.TOKENS, layout.OFFSETS} <= manifest["dtypes"].keys()


def _columns(arrays: Mapping[str, np.ndarray], group: str) -> dict[str, np.ndarray]:
    """The arrays of the files in a folder, by column."""
    prefix = f"{group}/"
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
