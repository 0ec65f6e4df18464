"""The keys of an agent, as byte values; literal, so that a spec needs no engine."""

from __future__ import annotations

import re
from collections.abc import Iterable

SPACE = 32
ESCAPE = 27
YES = ord("y")
QUIT = (0x80 | ord("q"), YES)

# Return, the eight directions (k l j h u n b y) alone and as runs (upper case), up, down, wait,
# kick, eat, search.
TASK_KEYS: tuple[int, ...] = (13, *b"kljhunby", *b"KLJHUNBY", *b"<>.", 4, *b"es")
CAST = ord("Z")
# Adds cast, drink, pray, pick up, pay.
EXTENDED_KEYS: tuple[int, ...] = (*TASK_KEYS, CAST, ord("q"), 0x80 | ord("p"), ord(","), ord("p"))
# Automatic keys: improve a skill, and select the first choice.
ENHANCE = 0x80 | ord("e")
FIRST_CHOICE = ord("a")

_KEY_NAMES = {
    13: "more", ord("k"): "north", ord("l"): "east", ord("j"): "south", ord("h"): "west",
    ord("u"): "north-east", ord("n"): "south-east", ord("b"): "south-west", ord("y"): "north-west",
    ord("K"): "run north", ord("L"): "run east", ord("J"): "run south", ord("H"): "run west",
    ord("U"): "run north-east", ord("N"): "run south-east", ord("B"): "run south-west", ord("Y"): "run north-west",
    ord("<"): "up", ord(">"): "down", ord("."): "wait", 4: "kick", ord("e"): "eat", ord("s"): "search",
    CAST: "cast", ord("q"): "drink", 0x80 | ord("p"): "pray", ord(","): "pick up", ord("p"): "pay",
    0xE1: "adjust", ord("a"): "apply", 24: "attributes", ord("C"): "call", 0xE3: "chat", ord("c"): "close", 0xE4: "dip",
    ord("d"): "drop", ord("D"): "drop several", ord("E"): "engrave", 0xE5: "enhance", ESCAPE: "escape", ord("F"): "fight",
    ord("f"): "fire", 0xE6: "force", ord("i"): "inventory", ord("I"): "inventory by type", 0xE9: "invoke", 0xEA: "jump",
    ord(":"): "look", 0xEC: "loot", 0xED: "monster", ord("m"): "move", ord("M"): "move far", 0xEF: "offer",
    ord("o"): "open", ord("P"): "put on", ord("Q"): "quiver", ord("r"): "read", ord("R"): "remove", 0xD2: "ride",
    0xF2: "rub", ord("g"): "rush", ord("G"): "rush 2", ord("["): "see armor", ord("="): "see rings", ord("("): "see tools",
    ord("^"): "see trap", ord(")"): "see weapon", ord("!"): "shell", 0xF3: "sit", ord("x"): "swap", ord("T"): "take off",
    ord("A"): "take off all", ord("t"): "throw", 0xD4: "tip", 0xF4: "turn undead", ord("X"): "two weapons", 0xF5: "untrap",
    ord("v"): "version", ord("W"): "wear", ord("w"): "wield", 0xF7: "wipe", ord("z"): "zap", ord("+"): "plus",
    ord('"'): "quote", ord("$"): "dollar", SPACE: "space",
}  # fmt: skip


def action_names(keys: Iterable[int]) -> tuple[str, ...]:
    """Names of the actions that send `keys`, for people."""
    return tuple(_KEY_NAMES[key] for key in keys)


EAT_QUESTION = b"What do you want to eat?"
DRINK_QUESTION = b"What do you want to drink?"
# The hero went down stairs; the message is kept over the prompts that follow only with its full
# stop, as published.
STAIRS_SENTENCE = b"You descend the stairs"
# The agent answers single-key questions with one of these words.
OPEN_QUESTIONS = (b"eat", b"attack", b"direction?", b"pray")
EXTENDED_OPEN_QUESTIONS = (*OPEN_QUESTIONS, b"drink")
# A skill can be improved.
SKILL_SENTENCE = b"You feel more confident in"
# The hero killed something, in any case of letters; as published, "You killed it." does not count.
KILL_PHRASE = b"you kill "

_LETTERS = re.compile(rb"\[([A-Za-z]+)")


def offered_letter(message: bytes, questions: tuple[bytes, ...] = (EAT_QUESTION,)) -> int | None:
    """The key that means "yes" to the question in `message` (256 bytes); None if it asks none of
    `questions`.

    It is the inventory letter directly after the question's bracket, else SPACE, which cancels the
    question.
    """
    if not any(question in message for question in questions):
        return None
    offered = _LETTERS.search(message)
    return offered.group(1)[0] if offered else SPACE
