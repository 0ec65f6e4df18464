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


class TokensDataset:
    """An open dataset with memory-mapped arrays (see `layout`), `manifest` being the content of tokens.json.

    Raises UserError: the folder is no dataset of tokens, or a file is missing, damaged or has another size than in the manifest.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        path, remedy = self.folder / layout.MANIFEST, "write the dataset again"
        if not path.is_file():
            raise UserError(f"{folder} is not a dataset of tokens: it has no {layout.MANIFEST}")
        self.manifest: dict[str, Any] = read_json(path, remedy, keys=_KEYS)
        said, counts = self.manifest, ("items", "tokens", "vocab_size")
        good = all(type(said[key]) is int and 0 <= said[key] < 1 << 62 for key in counts)
        good &= all(isinstance(said[key], dict) for key in ("dtypes", "digests"))
        if not good or not {layout.TOKENS, layout.OFFSETS} <= set(said["dtypes"]):
            raise UserError(f"{path} is damaged (counts, dtypes or digests are invalid): {remedy}")
        arrays = {name: self._map(name) for name in said["dtypes"]}
        self.tokens, self.offsets = arrays[layout.TOKENS], arrays[layout.OFFSETS]
        self.token_columns: Mapping[str, np.ndarray] = _below(arrays, layout.TOKEN_COLUMNS)
        self.item_columns: Mapping[str, np.ndarray] = _below(arrays, layout.ITEM_COLUMNS)

    def _map(self, name: str) -> np.ndarray:
        path, manifest = self.folder / f"{name}.npy", self.manifest
        of_items = name == layout.OFFSETS or name.startswith(layout.ITEM_COLUMNS)
        rows = manifest["items"] + (name == layout.OFFSETS) if of_items else manifest["tokens"]
        try:
            # An empty array cannot be memory-mapped.
            array = load_array(path, mapped=rows > 0)
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}): write the dataset again") from None
        if array.shape != (rows,) or array.dtype.str != manifest["dtypes"][name]:
            raise UserError(
                f"{path} is {array.dtype} {list(array.shape)}, tokens.json says {manifest['dtypes'][name]} [{rows}]: "
                "write the dataset again"
            )
        return array

    def check_digests(self) -> None:
        """Reads every file. Raises UserError: a file, which the error names, has changed."""
        for name, digest in self.manifest["digests"].items():
            path = self.folder / f"{name}.npy"
            if not path.is_file() or digests.of_file(path) != digest:
                raise UserError(f"{path} was changed after it was written: write the dataset again")

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
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


def _below(arrays: Mapping[str, np.ndarray], group: str) -> dict[str, np.ndarray]:
    start = f"{group}/"
    return {n.removeprefix(start): array for n, array in arrays.items() if n.startswith(start)}
