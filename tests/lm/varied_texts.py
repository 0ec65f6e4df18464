"""Two hundred texts that try a tokenizer: words, numbers, code, blanks, lines, accents, other
scripts, signs and contractions.
"""

from __future__ import annotations

import random

COUNT = 200
_PARTS = (
    "the", "You kill the newt!", "DoorKey", "don't", "I'LL", "we're", "it's", "naïve", "café", "cafe\u0301", "Straße", "Ωμέγα", "привет",
    "日本語", "안녕", "😀", "👩‍🚀", "0", "7", "42", "2026", "3.14159", "1,000,000", "x**2", "def f(x):", "return x", "{'a': [1, 2]}",
    "<b>", "https://example.org/a?b=c", "a_b", "camelCase", "ALLCAPS", "...", "--", "?!", "(", ")", "\"quoted\"", "“quoted”",
    "–", "§", "€5", "½", "①", "\u00a0", "e\u0301", "ﬁ", "@", "supercalifragilisticexpialidocious", "zzzzqqqq", "\\n", "<|nothing|>",
)  # fmt: skip
_GAPS = (
    " ",
    " ",
    " ",
    "",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\n\n\n",
    "\t",
    "\r\n",
    " \n ",
    ", ",
    ". ",
    "        ",
)


def varied_texts() -> list[str]:
    """The same texts at every call."""
    draw = random.Random(0)
    texts = ["", " ", "\n", "  leading", "trailing  ", "a" * 60, " " * 33, "\n" * 5]
    while len(texts) < COUNT:
        words = [draw.choice(_PARTS) + draw.choice(_GAPS) for _ in range(draw.randint(1, 16))]
        texts.append("".join(words))
    return texts
