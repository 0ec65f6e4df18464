"""Claims that one method does more of something than another, as a config writes them; and the gold
that a game's messages tell of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from motif_jax.core.errors import UserError
from motif_jax.motif.annotation.lexicon import sentences
from motif_jax.play import messages

# The measure of `gathered`.
GATHERED = "gathered"
_TAKEN = re.compile(r"(?:\$ - |You (?:find|collect|gain|take) )(an?|\d+) gold")
# A vault's heaps have 51 pieces or more, and no other heap of the first levels does. One vault
# outweighs hundreds of games.
_LARGEST_HEAP = 50
# A minus stands between blanks: names of methods may have one.
_PLAIN_CLAIM = re.compile(r"\s*(?P<more>.+?)\s*>\s*(?P<less>.+?)\s*:\s*(?P<measure>[^\s:]+)\s*")
_CLAIM = re.compile(
    r"\s*(?P<more>.+?)\s*>\s*(?P<less>.+?)(?:(?P<sign>\s*\+|\s-\s)\s*(?P<margin>\d+(?:\.\d+)?))?\s*:\s*(?P<measure>[^\s:]+)\s*"
)


class Claim(NamedTuple):
    """That `more` does more of `measure` than `less`, by more than `margin`; with a negative
    margin, that it does hardly less.
    """

    more: str
    less: str
    measure: str
    margin: float = 0.0

    def __str__(self) -> str:
        return f"{self.more} > {self.other_side}: {self.measure}"

    @property
    def other_side(self) -> str:
        """What `more` is compared with: the other method, and the margin."""
        if not self.margin:
            return self.less
        sign = "+" if self.margin > 0 else "-"
        return f"{self.less} {sign} {abs(self.margin):g}"


def parsed_claims(text: str, methods: Sequence[str]) -> list[Claim]:
    """Reads 'A > B: measure; A > B + 0.3: measure; A > B - 0.1: measure'. Raises UserError: another
    form, an unknown method, or one method twice.
    """
    claims = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        # The name of a method may end as a margin does: 'lr=1e+3'.
        match = _PLAIN_CLAIM.fullmatch(part)
        if match is None or {match["more"], match["less"]} - set(methods):
            match = _CLAIM.fullmatch(part)
        if match is None or {match["more"], match["less"]} - set(methods):
            raise UserError(
                f"config.claims={part}: must be 'A > B: measure; A > B + NUMBER: measure; A > B - NUMBER: measure; ...' with A and B of "
                f"{', '.join(methods)} (the methods in the tables)"
            )
        if match["more"] == match["less"]:
            raise UserError(f"config.claims={part}: compares {match['more']} with itself")
        claims.append(Claim(match["more"], match["less"], match["measure"], _margin(match)))
    return claims


def _margin(match: re.Match[str]) -> float:
    """The margin of a claim, 0 where it has none."""
    parts = match.groupdict()
    margin = float(parts.get("margin") or 0)
    return -margin if (parts.get("sign") or "").strip() == "-" else margin


def gathered(packed: str) -> int:
    """The gold that the hero picked up outside vaults, by an episode's packed messages."""
    pieces = 0
    for tally in messages.unpack(packed):
        for sentence in sentences(tally.text):
            taken = _TAKEN.match(sentence)
            if taken is None:
                continue
            heap = int(taken[1]) if taken[1].isdigit() else 1
            if heap <= _LARGEST_HEAP:
                pieces += tally.count * heap
    return pieces
