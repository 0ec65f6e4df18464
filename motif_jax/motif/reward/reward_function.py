"""A trained reward as a Python function of messages."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import hub, text_bytes
from motif_jax.core.devices import jax_options
from motif_jax.core.errors import UserError
from motif_jax.motif.reward.normalisation import Normalisation
from motif_jax.motif.reward.reward_model import (
    RewardModel,
    pad_messages,
    read_run,
)
from motif_jax.motif.reward.safetensors_file import read_safetensors
from motif_jax.motif.reward.training_texts import is_known, read_training_texts
from motif_jax.rl.message_table import MessageTable

# Also other arrays that numpy can read.
Messages = bytes | str | np.ndarray | Sequence[bytes | str]

_ALLOWED = "a message is bytes, str or an array of integers from 0 to 255; several are a list of them or [..., length]"
# Suffix of the file that export:reward writes.
FILE_SUFFIX = ".safetensors"


class RewardFunction:
    """Rewards of messages under a trained model that reads the message alone. A message is computed
    once, then looked up.
    """

    def __init__(self, trained: RewardModel) -> None:
        if not trained.network.architecture.message_only:
            needed = ", ".join(trained.network.architecture.fields)
            raise UserError(f"{trained.folder}: this reward reads {needed}, not the message alone")
        self.trained = trained
        self._table = MessageTable(trained.of_messages, trained.params)
        # A cache of this object, so that both are freed together.
        self._normalisation = functools.lru_cache(maxsize=32)(trained.normalisation)

    @jax_options.defaults()
    def __call__(self, messages: Messages) -> np.ndarray:
        """Normalised rewards float32 [...], one number for each message, without axes for a single
        one.

        Args:
          messages: one text as bytes, str or an array [L] of integers from 0 to 255, or several: a
            sequence of them or an array [..., L]. Arrays may be numpy's, jax's or any that numpy
            can read. Texts have at most 256 bytes; str is encoded as UTF-8.

        Raises UserError: `messages` is none of these; ValueError: a message is longer.
        """
        return np.asarray(self._normalisation().normalise(self.raw(messages)), np.float32)

    @jax_options.defaults()
    def raw(self, messages: Messages) -> np.ndarray:
        """Raw rewards of the model, as in `__call__`."""
        rows, shape = as_rows(messages)
        return self._table.lookup(rows).values.reshape(shape)

    @jax_options.defaults()
    def intrinsic(
        self,
        messages: Messages,
        quantile: float | str | None = 0.5,
    ) -> np.ndarray:
        """The reward of an agent: normalised, and 0 unless strictly above the threshold of the
        quantile or of 'auto'.
        """
        normalisation = self.normalisation(quantile=quantile)
        return np.asarray(normalisation(self.raw(messages)), np.float32)

    @jax_options.defaults()
    def normalisation(
        self,
        normalise: bool = True,
        quantile: float | str | None = None,
        two_decimals: bool | None = None,
    ) -> Normalisation:
        """The statistics with a threshold, see `RewardModel.normalisation`; made once for the same
        arguments.
        """
        return self._normalisation(normalise, quantile, two_decimals)

    def known(self, messages: Messages) -> np.ndarray:
        """Whether training knew each message: bool [...], as in `__call__`.

        The reward of a message that training never showed is the network's guess by its spelling.
        Raises UserError: as in `__call__`; or the reward has no record of its training's texts, as
        those of the published system.
        """
        rows, shape = as_rows(messages)
        return is_known(self._training_texts, rows).reshape(shape)

    @functools.cached_property
    def _training_texts(self) -> np.ndarray:
        return read_training_texts(self.trained.folder)

    @jax_options.defaults()
    def disagreement(self, messages: Messages) -> np.ndarray:
        """The standard deviation of an ensemble's normalised rewards, float32 [...], as in
        `__call__`; UserError for a single model.
        """
        if self.trained.members == 1:
            raise UserError(
                f"{self.trained.folder} is a single model, so nothing can disagree: train with "
                "--config.ensemble.members=5"
            )
        rows, shape = as_rows(messages)
        members = self.trained.members_of_messages(self.trained.params, rows)
        return self.trained.disagreement(members).reshape(shape)


@jax_options.defaults()
def load(folder: str | Path, step: int | None = None) -> RewardFunction:
    """Loads a reward as a function of messages.

    Args:
      folder: run folder of train_reward, or of an agent that learned its reward while it played; or
        the .safetensors file that export:reward writes; or hf://OWNER/NAME.
      step: which evaluation of the run; None for the newest, or the best of a run that stops early.
        A file has only its own.

    Raises UserError: there is no reward, no such evaluation, or the reward reads more than the
    message.
    """
    return RewardFunction(open_reward(hub.local(folder), step))


def open_reward(path: str | Path, step: int | None = None) -> RewardModel:
    """Reads evaluation `step` of a reward from a run folder or a .safetensors file; UserError if
    there is none.
    """
    if Path(path).suffix != FILE_SUFFIX:
        return read_run(path, step)
    trained = read_safetensors(path)
    if step is not None and step != trained.step:
        raise UserError(
            f"{path} has no evaluation {step}: it holds evaluation {trained.step} of its run"
        )
    return trained


def as_rows(messages: Any) -> tuple[np.ndarray, tuple[int, ...]]:
    """Turns the input of `RewardFunction` into (uint8 [N, 256], shape of the answer)."""
    if isinstance(messages, bytes | bytearray | str):
        return _of_texts([messages]), ()
    if hasattr(messages, "__array__"):
        array = np.asarray(messages)
        if array.dtype.kind in "SUO":  # texts, or objects that may be
            return _of_texts(array.reshape(-1).tolist()), array.shape
        array = _as_bytes(array)
        leading = array.shape[:-1]
        # The product, not -1, which numpy refuses for an array without entries.
        return pad_messages(array.reshape(int(np.prod(leading)), array.shape[-1])), leading
    return _of_texts(messages), (len(messages),)


def _as_bytes(array: np.ndarray) -> np.ndarray:
    # As bytes, floating numbers would be cut and large ones would wrap around.
    are_bytes = (
        array.ndim > 0 and array.dtype.kind in "iu" and bool(((array >= 0) & (array <= 255)).all())
    )
    if not are_bytes:
        raise UserError(f"an array {array.dtype} {list(array.shape)}: {_ALLOWED}")
    return array.astype(np.uint8)


def _of_texts(texts: Sequence[Any]) -> np.ndarray:
    rows = np.zeros((len(texts), 256), np.uint8)
    for row, text in zip(rows, map(encode, texts), strict=True):
        row[: len(text)] = np.frombuffer(text, np.uint8)
    return rows


def encode(text: Any) -> bytes:
    """The bytes of one message in UTF-8, without trailing zeros; UserError if it is not a
    message.
    """
    if isinstance(text, str):
        raw = text_bytes.encode(text)
    elif isinstance(text, bytes | bytearray):
        raw = bytes(text)
    elif np.ndim(text) == 1:
        raw = _as_bytes(np.asarray(text)).tobytes()
    else:
        raise UserError(f"{type(text).__name__} is not a message: {_ALLOWED}")
    return raw.rstrip(b"\0")
