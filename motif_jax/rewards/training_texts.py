"""Which texts a reward was trained on: hashes beside its checkpoints, small enough to go wherever the run folder goes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from motif_jax.datasets.pairs.distinct import hash_rows
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_save_npy

FILE = "training_texts.npy"


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


def read_training_texts(folder: Path) -> TrainingTexts:
    """Reads what `write_training_texts` wrote.

    Raises:
      UserError: nothing was written there, or the file is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        raise UserError(
            f"{folder} does not say what its reward was trained on: runs of train_reward have {FILE} from version 0.2 on; the "
            "same command, given once more, writes it"
        )
    try:
        hashes = np.load(path, allow_pickle=False)
        good = hashes.dtype == np.uint64 and hashes.ndim == 1 and bool((hashes[1:] > hashes[:-1]).all())
    except (OSError, ValueError, EOFError):
        good = False
    if not good:
        raise UserError(f"{path} is damaged: remove it, and give train_reward's command once more")
    return TrainingTexts(hashes)
