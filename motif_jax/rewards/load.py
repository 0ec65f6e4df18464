"""A trained reward as a Python function of messages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from motif_jax.rewards.exchange import read_safetensors
from motif_jax.rewards.trained import TrainedReward, pad_messages, read_trained
from motif_jax.support.errors import UserError

Messages = bytes | str | np.ndarray | Sequence[bytes | str]


class RewardFunction:
    """Rewards of messages under a trained model that reads the message alone.

    Attributes:
      trained: the model with its statistics.
    """

    def __init__(self, trained: TrainedReward) -> None:
        if not trained.network.architecture.message_only:
            needed = ", ".join(trained.network.architecture.fields)
            raise UserError(f"{trained.folder}: this reward reads {needed}, not the message alone")
        self.trained = trained

    def __call__(self, messages: Messages) -> np.ndarray:
        """Normalised rewards.

        Args:
          messages: one text as bytes, str or uint8 [L], or several: a sequence of them or uint8 [..., L].
            Texts have at most 256 bytes; str is encoded as latin-1, the game's own coding.

        Returns:
          float32 [...], one number for each message, without axes for a single one.

        Raises:
          UserError: a message is longer than 256 bytes or not latin-1.
        """
        return np.asarray(self.trained.normalisation().normalise(self.raw(messages)), np.float32)

    def raw(self, messages: Messages) -> np.ndarray:
        """Raw rewards of the model, as in `__call__`."""
        rows, shape = as_rows(messages)
        return self.trained.of_messages(self.trained.params, rows).reshape(shape)

    def intrinsic(self, messages: Messages, quantile: float | None = 0.5) -> np.ndarray:
        """What an agent would get: normalised, and 0 unless strictly above the quantile's threshold."""
        return np.asarray(self.trained.normalisation(True, quantile)(self.raw(messages)), np.float32)


def load(folder: str | Path, step: int | None = None) -> RewardFunction:
    """Loads a reward as a function of messages.

    Args:
      folder: run folder of train_reward, or the .safetensors file that export_reward writes.
      step: which evaluation of the run, None for the newest; a file has only its own.

    Raises:
      UserError: no reward there, no such evaluation, or the reward reads more than the message.
    """
    is_file = Path(folder).suffix == ".safetensors"
    return RewardFunction(read_safetensors(folder) if is_file else read_trained(folder, step))


def as_rows(messages: Messages) -> tuple[np.ndarray, tuple[int, ...]]:
    """Turns what `RewardFunction` takes into (uint8 [N, 256], shape of the answer)."""
    if isinstance(messages, np.ndarray) and messages.dtype == np.uint8:
        return pad_messages(messages.reshape(math.prod(messages.shape[:-1]), -1)), messages.shape[:-1]
    if isinstance(messages, bytes | str):
        return as_rows([messages])[0], ()
    texts = [encode(text) for text in messages]
    rows = np.zeros((len(texts), 256), np.uint8)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = np.frombuffer(text, np.uint8)
    return rows, (len(texts),)


def encode(text: bytes | str) -> bytes:
    """The bytes of one message as the game has them, without trailing zeros."""
    try:
        raw = text.encode("latin-1") if isinstance(text, str) else bytes(text)
    except UnicodeEncodeError:
        raise UserError(f"the message {text!r} has characters that are not latin-1") from None
    if len(raw) > 256:
        raise UserError(f"the message {text!r} has {len(raw)} bytes: at most 256 are read")
    return raw.rstrip(b"\0")
