"""Captions: the text of a sub-sequence of a game for a language model (Motif, section "annotation
by an LLM").

Golden numbers: caption_grouping.json.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from motif_jax.core import text_bytes
from motif_jax.envs.nethack.status import DEPTH, GOLD, HP, HUNGER, LEVEL, MAX_HP

_HUNGER_NAMES = ("Satiated", "", "Hungry", "Weak", "Fainting", "Fainted", "Starved")


def decode_message(message: np.ndarray) -> str:
    """Text of one message uint8 [bytes], without zero bytes; see `text_bytes.decode`."""
    return text_bytes.decode(message.tobytes().replace(b"\0", b""))


def group_messages(messages: Sequence[str]) -> tuple[list[str], list[int]]:
    """Lines of the messages that are not empty, repeats joined as "text (xN)", and the step at
    which each line begins.

    Without lines the steps are [0], so that a status line has a step to be read at.
    """
    lines = []
    first_steps = []
    step = 0
    for message, repeats in itertools.groupby(messages):
        count = len(list(repeats))
        if message:
            lines.append(message if count == 1 else f"{message} (x{count})")
            first_steps.append(step)
        step += count
    return lines, first_steps or [0]


def status_line(blstats: np.ndarray) -> str:
    """Status of one step of blstats [26 or 27]: depth, gold, hit points, experience level,
    hunger.
    """
    value = [int(entry) for entry in blstats]
    hunger = value[HUNGER]
    # Datasets from elsewhere may hold any number; a negative one would index from the end.
    hunger_name = _HUNGER_NAMES[hunger] if 0 <= hunger < len(_HUNGER_NAMES) else ""
    hit_points = f"{value[HP]} ({value[MAX_HP]})"
    return f"Dlvl:{value[DEPTH]} $:{value[GOLD]} HP:{hit_points} Xp:{value[LEVEL]} {hunger_name}"


def caption(
    messages: np.ndarray, blstats: np.ndarray | None = None, use_messages: bool = True
) -> str:
    """Caption of one sub-sequence, one line for each group of messages uint8 [length, bytes].

    With blstats int [length, 26 or 27] each line is followed by the status at the step where the
    group begins (the first step without messages); without `use_messages` the status stands alone.
    """
    lines, first_steps = group_messages([decode_message(message) for message in messages])
    if blstats is None:
        return "\n".join(lines)
    # Without a word for hunger the line ends with a blank.
    status = [f"[{status_line(blstats[step]).rstrip()}]" for step in first_steps]
    if not (use_messages and lines):
        return "\n".join(status)
    return "\n".join(f"{line} {state}" for line, state in zip(lines, status, strict=True))


def dataset_captions(
    data: Mapping[str, np.ndarray], use_messages: bool, use_status: bool
) -> Iterator[tuple[str, str]]:
    """`pair_captions` of the arrays `message` and `blstats` of a dataset, with messages, status or
    both.
    """
    return pair_captions(data["message"], data["blstats"] if use_status else None, use_messages)


def pair_captions(
    messages: np.ndarray, blstats: np.ndarray | None, use_messages: bool = True, block: int = 4096
) -> Iterator[tuple[str, str]]:
    """Yields the two captions of each pair of messages uint8 [pairs, 2, length, bytes] and blstats
    [pairs, 2, length, 26 or 27].

    The arrays may be memory maps: `block` pairs are read at a time.
    """
    # Most messages of a dataset repeat.
    decode_cached = functools.cache(
        lambda message: decode_message(np.frombuffer(message, np.uint8))
    )
    for start in range(0, len(messages), block):
        texts: Iterator[str]
        rows = np.concatenate(messages[start : start + block])
        if blstats is not None:
            status = np.concatenate(blstats[start : start + block])
            texts = map(caption, rows, status, itertools.repeat(use_messages))
        elif messages.shape[2] == 1:
            texts = (decode_cached(message.tobytes()) for message in rows)
        else:
            # Whole sub-sequences seldom repeat: a cache of them would only grow.
            texts = map(caption, rows)
        # Both arguments are the same iterator, so that each tuple takes the next two texts.
        yield from zip(texts, texts, strict=True)
