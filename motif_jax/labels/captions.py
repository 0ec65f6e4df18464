"""Captions: the text of a sub-sequence of a game for a language model (Motif, section "annotation by an LLM").

Golden numbers: caption_grouping.json.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from motif_jax.envs.nethack.status import DEPTH, GOLD, HP, HUNGER, LEVEL, MAX_HP

_HUNGER_NAMES = ("Satiated", "", "Hungry", "Weak", "Fainting", "Fainted", "Starved")


def decode_message(message: np.ndarray) -> str:
    """Text of one message uint8 [bytes]: latin-1 without zero bytes."""
    return message.tobytes().replace(b"\0", b"").decode("latin-1")


def group_messages(messages: Sequence[str]) -> tuple[list[str], list[int]]:
    """Drops empty messages and joins consecutive repeats as "text (xN)"; an empty message separates repeats.

    Returns:
      The lines, and the step at which each begins; ([], [0]) if every message is empty.
    """
    lines, starts, step = [], [], 0
    for message, run in itertools.groupby(messages):
        count = sum(1 for _ in run)
        if message:
            lines.append(message if count == 1 else f"{message} (x{count})")
            starts.append(step)
        step += count
    return lines, starts or [0]


def status_line(blstats: np.ndarray) -> str:
    """Status of one step of blstats [26 or 27]: depth, gold, hit points, experience level, hunger."""
    value = [int(entry) for entry in blstats]
    hunger = value[HUNGER]
    name = _HUNGER_NAMES[hunger] if 0 <= hunger < len(_HUNGER_NAMES) else ""
    return f"Dlvl:{value[DEPTH]} $:{value[GOLD]} HP:{value[HP]} ({value[MAX_HP]}) Xp:{value[LEVEL]} {name}"


def caption(messages: np.ndarray, blstats: np.ndarray | None = None, use_messages: bool = True) -> str:
    """Caption of one sub-sequence, one line for each group of messages.

    Args:
      messages: uint8 [length, bytes].
      blstats: int [length, 26 or 27]; each line is followed by the status at the step where the group begins (the first
        step without messages). None for no status.
      use_messages: False leaves the status lines alone.
    """
    lines, starts = group_messages([decode_message(message) for message in messages])
    if blstats is None:
        return "\n".join(lines)
    status = [f"[{status_line(blstats[step]).rstrip()}]" for step in starts]
    if not use_messages:
        return "\n".join(status)
    if not lines:
        return status[0]
    return "\n".join(f"{line} {state}" for line, state in zip(lines, status, strict=True))


class CaptionReader:
    """Captions of a dataset's pairs; decodes each distinct message once in sub-sequences of one message."""

    def __init__(
        self, messages: np.ndarray, blstats: np.ndarray | None, use_messages: bool = True, block: int = 4096
    ):
        """messages: uint8 [pairs, 2, length, bytes]; blstats: [pairs, 2, length, 26 or 27] or None."""
        self._messages = messages
        self._blstats = blstats
        self._use_messages = use_messages
        self._block = block
        self._cache: dict[bytes, str] = {}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for start in range(0, len(self._messages), self._block):
            messages, blstats = np.asarray(self._messages[start : start + self._block]), self._blstats
            if blstats is not None:
                blstats = np.asarray(blstats[start : start + self._block])
            for row in range(len(messages)):
                yield self._one(messages, blstats, row, 0), self._one(messages, blstats, row, 1)

    def _one(self, messages: np.ndarray, blstats: np.ndarray | None, row: int, side: int) -> str:
        if blstats is not None:
            return caption(messages[row, side], blstats[row, side], self._use_messages)
        if messages.shape[2] > 1:  # few repeat, and all would be cached
            return caption(messages[row, side])
        key = messages[row, side].tobytes()
        text = self._cache.get(key)
        if text is None:
            text = self._cache[key] = caption(messages[row, side])
        return text
