"""Reads and writes 64-bit hashes of a reward's training texts, beside its checkpoints or in its
.safetensors file.

With a million texts, one in 10^13 other texts is mistaken for one of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import safe_open

from motif_jax.core.distinct import hash_rows
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_save_npy, load_array

FILE = "training_texts.npy"
# The same in a .safetensors file: uint64 [M], ascending.
TENSOR = "training_texts"


def is_known(hashes: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Which of the texts uint8 [N, 256] are among those of `hashes` uint64 [M], ascending: bool
    [N].
    """
    if not hashes.size:
        return np.zeros(len(texts), bool)
    text_hashes = hash_rows(texts)
    # Where a hash is greater than all, the position is past the end.
    positions = np.minimum(np.searchsorted(hashes, text_hashes), hashes.size - 1)
    return hashes[positions] == text_hashes


def write_training_texts(folder: Path, texts: np.ndarray) -> None:
    """Writes the hashes of a run's training texts uint8 [M, 256], whole or not at all."""
    atomic_save_npy(folder / FILE, np.unique(hash_rows(texts)))


def tensors_of(source: Path) -> dict[str, np.ndarray]:
    """The tensor of a .safetensors file with the hashes of a run folder or of such a file, if it
    has them.
    """
    if source.suffix == ".safetensors" and source.is_file():
        with safe_open(str(source), framework="numpy") as file:
            return {TENSOR: file.get_tensor(TENSOR)} if TENSOR in set(file.keys()) else {}
    return {TENSOR: load_array(source / FILE)} if (source / FILE).is_file() else {}


def copy_training_texts(source: Path, folder: Path) -> None:
    """Copies the hashes of the reward in `source` into a run folder, if it has them."""
    for hashes in tensors_of(source).values():
        atomic_save_npy(folder / FILE, hashes)


def read_training_texts(source: Path) -> np.ndarray:
    """Hashes uint64 [M], ascending, of the texts that a reward (run folder or file) was trained on;
    UserError without any.
    """
    tensors = tensors_of(source)
    if not tensors:
        raise UserError(
            f"{source} does not say what its reward was trained on: only runs of train_reward and files exported from them do; "
            f"if {FILE} is lost, the run's command writes it again"
        )
    return tensors[TENSOR]
