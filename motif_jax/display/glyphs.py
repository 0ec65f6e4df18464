"""Which letters the fonts of pictures have."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4)
def _letters(font_file: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(font_file).get_charmap())


def drawable(text: str, font_file: str) -> str:
    """`text` with escapes for the letters that the font lacks, which would all be the same empty
    box.
    """
    letters = _letters(font_file)
    return "".join(
        letter
        if letter.isascii() or ord(letter) in letters
        else letter.encode("unicode_escape").decode()
        for letter in text
    )
