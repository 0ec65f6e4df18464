"""The keys that an agent may press, as byte values. Written out so that a spec needs no engine."""

from __future__ import annotations

import re

SPACE = 32
ESCAPE = 27
YES = ord("y")
QUIT = (0x80 | ord("q"), YES)

# Return, the eight directions (k l j h u n b y) alone and as runs (upper case), up, down, wait, kick, eat, search.
TASK_KEYS: tuple[int, ...] = (13, *b"kljhunby", *b"KLJHUNBY", *b"<>.", 4, *b"es")

_KEY_NAMES = {
    13: "more", ord("k"): "north", ord("l"): "east", ord("j"): "south", ord("h"): "west",
    ord("u"): "north-east", ord("n"): "south-east", ord("b"): "south-west", ord("y"): "north-west",
    ord("K"): "run north", ord("L"): "run east", ord("J"): "run south", ord("H"): "run west",
    ord("U"): "run north-east", ord("N"): "run south-east", ord("B"): "run south-west", ord("Y"): "run north-west",
    ord("<"): "up", ord(">"): "down", ord("."): "wait", 4: "kick", ord("e"): "eat", ord("s"): "search",
}  # fmt: skip
# What actions are called when people watch.
ACTION_NAMES: tuple[str, ...] = tuple(_KEY_NAMES[key] for key in TASK_KEYS)

EAT_QUESTION = b"What do you want to eat?"
# Says that the hero went down stairs; only with its full stop is it kept over the prompts that follow (as published).
STAIRS_SENTENCE = b"You descend the stairs"
# A single-key question that holds one of these words is left for the agent to answer.
OPEN_QUESTIONS = (b"eat", b"attack", b"direction?", b"pray")

_LETTERS = re.compile(rb"\[([A-Za-z]+)")


def eat_answer(message: bytes) -> int | None:
    """The key that stands for "yes" while `message` (256 bytes) is on the screen, None if it does not ask what to eat.

    The first inventory letter that the question offers directly after its bracket, else SPACE, which lets go of it.
    """
    if EAT_QUESTION not in message:
        return None
    offered = _LETTERS.search(message)
    return offered.group(1)[0] if offered else SPACE
