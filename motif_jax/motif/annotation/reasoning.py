"""Separates a model's reasoning from its answer, whatever the marks of its family are.

A verdict within a block of reasoning is not an answer, whether the block is closed or not.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Words that name a block of reasoning, and those around them that say where it begins or ends.
_NAMES = (
    "think|thinking|thinks|thought|thoughts|thoughtprocess|reason|reasoning|reasons|rationale|reflection|reflect|analysis|"
    "scratchpad|deliberation|monologue|innermonologue|innerthought|innerthoughts|internal|internalthoughts|inner|cot|"
    "chainofthought|ponder|pondering"
)
_BEGIN = "start|begin|prefix|open"
_END = "end|suffix|close|stop"
_NAME = re.compile(
    rf"(?:{_BEGIN}|(?P<end>{_END}))?(?:of)?(?:[a-z]{{1,16}}:|ant)?(?P<name>{_NAMES})(?::\w{{1,40}})?(?:{_BEGIN}|(?P<end_after>{_END}))?"
)
_JOINTS = re.compile(r"[\s_.\u2581-]+")
_MARK = re.compile(
    r"""
    # OpenAI's channels, <|channel|>analysis<|message|>...<|end|>, and Gemma's, <|channel>thought...<channel|>
    (?P<channel><\|channel\|?>\s{0,4}(?P<channel_name>\w{0,40})(?:<\|message\|>)?)
    | (?P<channel_end><\|(?:end|return|call)\|>|<\|start\|>(?:assistant)?|<channel\|>)
    # the same where a server dropped the special tokens: analysisWe compare ... assistantfinal("best ...
    | (?P<word>\A\s{0,64}(?:assistant)?analysis(?=[A-Z0-9"'(\[*])|assistant(?:analysis|commentary)(?=\S))
    | (?P<word_end>assistantfinal)
    # <think>, </Thinking>, <|begin_of_thought|>, <|END_THINKING|>, <seed:think>, <think budget="5">
    | (?P<tag><\|?\s{0,4}(?P<tag_end>/?)(?P<tag_name>[\w:.\u2581-]{1,60})(?:\s[^<>\n]{0,200}?)?(?P<tag_alone>/?)\s{0,4}\|?>)
    # [THINK], [/THINK]
    | (?P<bracket>\[\s{0,4}(?P<bracket_end>/?)(?P<bracket_name>[\w:. -]{1,40})\])
    # Kimi's
    | (?P<triangle>\u25c1\s{0,4}(?P<triangle_end>/?)(?P<triangle_name>[\w:. -]{1,40})\u25b7)
    # Granite's sentences, and a terminal's lines
    | (?P<sentence>(?i:here(?:'s|\ is)\ my\ thought\ process:))
    | (?P<sentence_end>(?i:here(?:'s|\ is)\ my\ response:))
    | (?P<line>(?m:^[ \t]{0,4}Thinking\.\.\.[ \t]{0,4}$))
    | (?P<line_end>(?m:^[ \t]{0,4}\.\.\.done\ thinking\.))
    """,
    re.VERBOSE,
)
# Marks whose name is another word: their name is a group of the pattern.
_WORDS = ("word", "sentence", "line")
_NAMED = ("tag", "bracket", "triangle")
_CHANNEL = "channel"
_FINAL = "final"
_CHANNELS = (_CHANNEL, "word")
# Outside a channel they only end a message; other families of models use them so, too.
_ENDS_OF_MESSAGES = ("<|end|>", "<|return|>", "<|call|>", "<|start|>")
# Square brackets around another word are a heading, [Analysis], unless they are closed.
_OF_BRACKETS = ("bracket think", "bracket thinking")


class SpokenPart(NamedTuple):
    """An answer without its reasoning; `inside`: it ends in a block of reasoning, so that it is not
    finished.
    """

    text: str
    inside: bool


class _Mark(NamedTuple):
    """A mark at [start, end) of a text that opens or closes a block of its kind."""

    start: int
    end: int
    kind: str
    opens: bool


def spoken(text: str) -> SpokenPart:
    """What an answer says outside its blocks of reasoning.

    A block ends at a mark of its own kind. An end without a beginning belongs to a block that the
    prompt's template began: all before it is reasoning.
    """
    parts: list[str] = []
    # The kind of the block that is open, '' outside of blocks, and how many of that kind are open.
    inside = ""
    depth = 0
    # The end of the last mark.
    position = 0
    for mark in _marks(text):
        if inside and mark.kind != inside:
            continue
        if inside and mark.opens:
            # A channel ends the one before it; other blocks may stand in each other.
            if mark.kind not in _CHANNELS:
                depth += 1
        elif inside:
            depth -= 1
            if depth == 0:
                inside = ""
        elif mark.opens:
            parts.append(text[position : mark.start])
            inside = mark.kind
            depth = 1
        elif text.startswith(_ENDS_OF_MESSAGES, mark.start):
            parts.append(text[position : mark.start])
        else:
            # An end without a beginning: all text so far was reasoning.
            parts.clear()
        position = mark.end
    if not inside:
        parts.append(text[position:])
    return SpokenPart("".join(parts).strip(), bool(inside))


def as_earlier_turn(text: str) -> str:
    """An answer as it is sent back with the next question: without reasoning, or if it has nothing
    else, without the marks.

    Templates of prompts refuse the marks in an earlier turn.
    """
    marks = _marks(text)
    if not marks:
        return text
    answer = spoken(text).text
    if answer:
        return answer

    parts = []
    position = 0
    for mark in marks:
        parts.append(text[position : mark.start])
        position = mark.end
    parts.append(text[position:])
    return "".join(parts).strip()


def _marks(text: str) -> list[_Mark]:
    """The marks of reasoning in a text, in their order."""
    marks = []
    for match in _MARK.finditer(text):
        kind_and_side = _read(match)
        if kind_and_side is not None:
            marks.append(_Mark(match.start(), match.end(), *kind_and_side))
    closed = {mark.kind for mark in marks if not mark.opens}
    return [mark for mark in marks if mark.kind in closed or not _may_be_prose(mark.kind)]


def _may_be_prose(kind: str) -> bool:
    """Whether a mark also occurs in answers without reasoning, so that it counts only where it is
    closed.
    """
    return kind in ("sentence", "line") or (kind.startswith("bracket") and kind not in _OF_BRACKETS)


def _read(match: re.Match[str]) -> tuple[str, bool] | None:
    """Kind of a mark, and whether it opens a block; None for one that is not a mark of
    reasoning.
    """
    groups = match.groupdict()
    if match["channel"] is not None:
        return _CHANNEL, match["channel_name"].lower() != _FINAL
    if match["channel_end"] is not None:
        return _CHANNEL, False
    for kind in _WORDS:
        if groups[kind] is not None or groups[f"{kind}_end"] is not None:
            return kind, groups[kind] is not None
    form = next(form for form in _NAMED if groups[form] is not None)
    name = _NAME.fullmatch(_JOINTS.sub("", groups[f"{form}_name"].lower()))
    if name is None or match["tag_alone"]:
        return None
    ends = groups[f"{form}_end"] or name["end"] or name["end_after"]
    return f"{form} {name['name']}", not ends
