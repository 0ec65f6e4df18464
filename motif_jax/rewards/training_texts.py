"""The texts of a reward's training: hashes beside its checkpoints, or in its .safetensors file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import safe_open

from motif_jax.datasets.pairs.distinct import hash_rows
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_save_npy, load_array

FILE = "training_texts.npy"
# The same in a .safetensors file: uint64 [M], ascending.
TENSOR = "training_texts"


class TrainingTexts:
    """A set of texts, known by 64-bit hashes: of a million texts, one in 10^13 others is mistaken for a member.

    Args:
      hashes: uint64 [M], ascending.
    """

    def __init__(self, hashes: np.ndarray) -> None:
        self.hashes = hashes

    def has(self, texts: np.ndarray) -> np.ndarray:
        """Which of the texts uint8 [N, 256] are in the set: bool [N]."""
        if not self.hashes.size:
            return np.zeros(len(texts), bool)
        wanted = hash_rows(texts)
        places = np.minimum(np.searchsorted(self.hashes, wanted), self.hashes.size - 1)
        return self.hashes[places] == wanted


def write_training_texts(folder: Path, texts: np.ndarray) -> None:
    """Writes which texts uint8 [M, 256] a run trains on, whole or not at all."""
    atomic_save_npy(folder / FILE, np.unique(hash_rows(texts)))


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    """The tensor of a .safetensors file with the hashes of the training's texts, if the run has them."""
    return {TENSOR: read_training_texts(folder).hashes} if (folder / FILE).is_file() else {}


def copy_training_texts(source: Path, folder: Path) -> None:
    """Copies the training texts of the reward in `source`, a folder or a .safetensors file, into a run folder, if it has them."""
    hashes = tensors_of(source).get(TENSOR)
    if source.suffix == ".safetensors" and source.is_file():
        hashes = _in_file(source)
    if hashes is not None:
        atomic_save_npy(folder / FILE, hashes)


def _in_file(path: Path) -> np.ndarray | None:
    with safe_open(str(path), framework="numpy") as file:
        return file.get_tensor(TENSOR) if TENSOR in set(file.keys()) else None


def read_training_texts(folder: Path) -> TrainingTexts:
    """Reads which texts the reward in a run folder, or in a .safetensors file, was trained on.

    Raises:
      UserError: nothing was written there, or the file is damaged.
    """
    path = folder / FILE
    held = _in_file(folder) if folder.is_file() else None
    if held is not None:
        return TrainingTexts(held)
    if not path.is_file():
        raise UserError(
            f"{folder} does not say what its reward was trained on: only runs of train_reward do, and files exported from them; "
            f"where {FILE} is lost, the run's command given once more writes it"
        )
    try:
        hashes = load_array(path)
        good = hashes.dtype == np.uint64 and hashes.ndim == 1 and bool((hashes[1:] > hashes[:-1]).all())
    except (OSError, ValueError):
        good = False
    if not good:
        raise UserError(f"{path} is damaged: remove it, and give train_reward's command once more")
    return TrainingTexts(hashes)
