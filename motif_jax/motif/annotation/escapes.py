"""Undoes the ways in which models and servers escape an answer, so that one rule reads all of
them.
"""

from __future__ import annotations

import html
import re
import unicodedata

# Invisible characters: zero-width blanks, soft hyphens, directions, variation selectors, the frame
# of a keycap.
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff\u20e3]")
_CODE = re.compile(r"\\u\{?([0-9a-fA-F]{4})\}?|\\x([0-9a-fA-F]{2})|%([2-7][0-9a-fA-F])")
# Commands of LaTeX around a text: \text{best\_description}, \boxed{1}.
_COMMAND = re.compile(
    r"\\+(?:boxed|fbox|text(?:bf|it|tt|rm|sf)?|math(?:bf|it|tt|rm|sf)|operatorname|emph)\b"
)
# Markdown, LaTeX and JSON write a backslash before a sign.
_BEFORE_SIGN = re.compile(r"\\+(?=[^\w\s\\])|\\+(?=_)")
_LINE_END = re.compile(r"\\+n")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
# Hyphens and minus signs of other scripts, which the normal form keeps. A long dash stands between
# words.
_HYPHENS = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212"), "-")
_DASHES = {**_HYPHENS, 0x2014: " - ", 0x2015: " - "}
_QUOTATION_MARKS = {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'}


def plain(text: str) -> str:
    """An answer without escapes of HTML, JSON, Markdown, LaTeX and URLs, its letters, digits and
    signs in ASCII where it can be.
    """
    # Twice, for &amp;quot;, which is escaped twice.
    for _ in range(2):
        if "&" in text:
            text = html.unescape(text)
    text = _CODE.sub(_character, text)
    text = _UNSEEN.sub("", text)
    text = unicodedata.normalize("NFKC", text)
    text = _NOT_ASCII.sub(_ascii_digit, text)
    text = text.translate(_DASHES | _QUOTATION_MARKS)
    if "\\" in text:
        if "\n" not in text:
            # The text of a JSON string, written as it was sent.
            text = _LINE_END.sub("\n", text)
        text = _BEFORE_SIGN.sub("", _COMMAND.sub(" ", text))
    return text


def _character(match: re.Match[str]) -> str:
    """The character of an escape, or the escape where it is half of a pair or cannot be printed."""
    character = chr(int(match[1] or match[2] or match[3], 16))
    return character if character.isprintable() else match[0]


def _ascii_digit(match: re.Match[str]) -> str:
    """The ASCII digit of a digit of any script."""
    number = unicodedata.decimal(match[0], None)
    return match[0] if number is None else str(number)
