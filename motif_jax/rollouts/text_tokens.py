"""A tokenizer learned from the dialogues of a task that has none of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from motif_jax.datasets.dialogues.dialogue import DialogueStream
from motif_jax.envs.text.contract import TextTask
from motif_jax.envs.text.file_tokens import FILE
from motif_jax.support import seeds
from motif_jax.support.errors import UserError
from motif_jax.support.interruption import StoppedError

_ARCHITECTURE = "gpt2"
# Enough that more of them change few merges.
_DIALOGUES, _AT_A_TIME = 4096, 256


def with_tokenizer(
    task: TextTask, kind: str, policy: str, folder: Path, seed: int, stopped: Callable[[], bool]
) -> dict[str, Any]:
    """Learns byte pairs into `folder`, where the task wants it and they are not there yet; returns its options, which name them.

    Args:
      task: whose dialogues they are learned from.
      kind, policy: of the dialogues.
      folder: where tokenizer.json goes.
      seed: of the dialogues.
      stopped: whether to stop, asked between parts of the dialogues.

    Raises:
      UserError: the task wants fewer tokens than bytes need.
      StoppedError: it was asked to.
    """
    if not task.learned_tokens():
        return dict(task.options)
    require_size(task)
    if not (folder / FILE).exists():
        from motif_jax.language import byte_pairs
        from motif_jax.rollouts import text_scores

        # What is said in games is paid on the way.
        texts = list(_texts(text_scores.attach(task).stream(kind, policy), task.count(kind), seed, stopped))
        byte_pairs.save(folder, byte_pairs.train(texts, _ARCHITECTURE, task.learned_tokens()), _ARCHITECTURE)
    return {**task.options, "tokenizer": str(folder)}


def require_size(task: TextTask) -> None:
    """Raises UserError where the vocabulary that a task wants to be learned is too small for any text."""
    if not (size := task.learned_tokens()):
        return
    from motif_jax.language import byte_pairs

    least = byte_pairs.smallest(_ARCHITECTURE)
    if size < least:
        raise UserError(
            f"config.{task.name}.vocab_size={size}: must be at least {least}, so that every byte has a token"
        )


def _texts(
    stream: DialogueStream, count: int | None, seed: int, stopped: Callable[[], bool]
) -> Iterator[str]:
    rng = seeds.rng(seed, "tokenizer")
    for first in itertools.count(0, _AT_A_TIME):
        size = min(_AT_A_TIME, (_DIALOGUES if count is None else min(count, _DIALOGUES)) - first)
        if size <= 0:
            return
        if stopped():
            raise StoppedError
        for dialogue in stream.sample(rng, size, first):
            yield from dialogue.texts
