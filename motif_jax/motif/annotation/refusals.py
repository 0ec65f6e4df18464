"""Tells a verdict from one that a refusal only quotes: "I cannot answer in the form
best_description: 1".

The patterns are English, as the prompts are. They bound every repeat, so that they take time linear
in the text's length.
"""

from __future__ import annotations

import re

_NEGATION = (
    r"(?:cannot|can not|can'?t|could not|couldn'?t|will not|won'?t|would not|wouldn'?t|should not|shouldn'?t|must not|may not|"
    r"unable to|not able to|not allowed to|not permitted to|not willing to|not going to|not comfortable|not appropriate|"
    r"not possible|impossible|inappropriate|do not|don'?t|am not|not something|isn'?t something|refuse|declin)"
)
# A verb that a refusal refuses, and one that only says that neither is preferred, for which a tie
# is the verdict.
_TASK = (
    "answer|provid|giv|comply|assist|help|respond|output|outputt|writ|us|produc|mak|participat|evaluat|judg|rat|rank|fulfil|"
    "fulfill|engag|reply|return|offer|do|discuss|review|request"
)
_PREFERENCE = "choos|decid|determin|tell|say|pick|select|compar|prefer|conclud|stat"
_SPEAKER = r"(?:i|i'm|we|sorry|apologi[sz]e|unfortunately|it is|it's|it would be|as an? (?:ai|language model|assistant))"


def _refusal(verbs: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?i)\b{_SPEAKER}\b[^.!?\n]{{0,60}}?\b{_NEGATION}\w{{0,3}}\b[^.!?\n]{{0,40}}?\b(?:{verbs})(?:e|es|ed|ing|s|e?r)?\b"
    )


_REFUSES = _refusal(_TASK)
_UNDECIDED = _refusal(f"{_TASK}|{_PREFERENCE}")
_DECLINES = re.compile(
    r"(?i)\b(?:(?:i|we) (?:must |have to |will |would )?(?:decline|refuse)|not something (?:that )?(?:i|we) (?:can|could|will)|"
    r"not (?:be )?appropriate|inappropriate)\b"
)
# After the form: "... is not something I can write", "... would be inappropriate".
_REFUSED = re.compile(
    rf"(?i)[^.!?\n]{{0,80}}?\b(?:{_NEGATION})\b[^.!?\n]{{0,40}}?\b(?:i|we|me|appropriate|inappropriate|possible|allowed|{_TASK})"
    r"|[^.!?\n]{0,80}?\b(?:inappropriate|impossible)\b"
)
# Words that quote or suppose a form instead of giving it.
_QUOTES = re.compile(
    r"(?i)\b(?:such as|like|for example|for instance|e\.g|form|format|template|asked|ask|request|requested|want|wanted|expected|"
    r"instead of|rather than|would|could|should|line|words|reply with|answer with|respond with)\b"
)
_SUPPOSES = re.compile(r"(?i)\b(?:between|whether|either|if)\b")
# A sentence begins after its predecessor; a word of contrast or conclusion begins another thought.
_THOUGHT = re.compile(
    r"(?i)[.!?;\n]|\b(?:but|so|therefore|thus|hence|however|nevertheless|nonetheless|still|anyway|yet|though)\b"
)
# Words that give a form, although the thought names it.
_GIVES = re.compile(
    r"(?i)\b(?:here is|here's|my (?:final )?(?:answer|verdict|choice)|i (?:choose|pick|say|prefer))\b"
)
# Characters before and after a form that are read.
_AROUND = 300


def refuses(text: str) -> bool:
    """Whether a text refuses, or says that it cannot prefer, anywhere."""
    return _UNDECIDED.search(text) is not None or _DECLINES.search(text) is not None


def is_quoted(text: str, start: int, end: int, tie: bool) -> bool:
    """Whether the form at [start, end) of a text that `refuses` is quoted and not given.

    It is quoted in a thought that refuses or supposes. With `tie`, the form holds the verdict of a
    tie: an answer that cannot prefer either side then gives its verdict, and only one that refuses
    the task quotes it.
    """
    before = text[max(0, start - _AROUND) : start]
    introduction = before.rstrip(" \t\n\"'(*`{[")
    on_its_own_line = "\n" in before[len(introduction) :]
    if introduction.endswith(":") or not on_its_own_line:
        thought = _THOUGHT.split(introduction)[-1]
        refusal = _REFUSES if tie else _UNDECIDED
        quotes = _QUOTES.search(thought) or (not tie and _SUPPOSES.search(thought))
        if refusal.search(thought) or (quotes and not _GIVES.search(thought)):
            return True
    return _REFUSED.match(text, end, end + _AROUND) is not None
