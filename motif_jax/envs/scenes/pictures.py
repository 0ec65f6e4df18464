"""Pictures made up of attributes: two groups of things in a place. Their features are the attributes, one-hot, one behind the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

KINDS = ("dog", "cat", "horse", "sheep", "bird", "car", "boat", "chair", "ball", "kite")
COLOURS = ("red", "blue", "green", "white", "black", "brown", "yellow", "grey")
NUMBERS = ("one", "two", "three", "four")
SIDES = ("left", "right", "front", "back")
PLACES = ("park", "street", "beach", "kitchen", "garden", "field", "harbour", "yard")
# Attributes of a picture in the order of its features: a place, and of each group kind, colour, number and side.
GROUP = (KINDS, COLOURS, NUMBERS, SIDES)
KIND, COLOUR, NUMBER, SIDE = range(4)
BLOCKS = (PLACES, *GROUP, *GROUP)
SIZES = tuple(map(len, BLOCKS))
STARTS = tuple(int(start) for start in np.cumsum((0, *SIZES))[:-1])
WIDTH = sum(SIZES)
PLACE = 0


def block(group: int, attribute: int) -> int:
    """Number of the block of an attribute of a group, 0 or 1."""
    return 1 + 4 * group + attribute


class Picture(NamedTuple):
    """A picture: the number of its value in each of `BLOCKS`."""

    values: tuple[int, ...]

    def word(self, place: int) -> str:
        """The value of a block as a word."""
        return BLOCKS[place][self.values[place]]

    def features(self) -> np.ndarray:
        """Float32 [WIDTH]."""
        found = np.zeros(WIDTH, np.float32)
        found[[start + value for start, value in zip(STARTS, self.values, strict=True)]] = 1.0
        return found


def seen(features: np.ndarray) -> Picture:
    """The picture that features, [WIDTH] of any length, show.

    Raises:
      ValueError: they have another size.
    """
    features = np.asarray(features, np.float64)
    if features.shape != (WIDTH,) or not np.isfinite(features).all():
        raise ValueError(f"img_features must be {WIDTH} finite numbers")
    return Picture(
        tuple(int(features[start : start + size].argmax()) for start, size in zip(STARTS, SIZES, strict=True))
    )


def draw(rng: np.random.Generator) -> Picture:
    """A picture; its two groups are of different kinds."""
    values = [int(rng.integers(size)) for size in SIZES]
    other = block(1, KIND)
    values[other] = (values[block(0, KIND)] + 1 + int(rng.integers(len(KINDS) - 1))) % len(KINDS)
    return Picture(tuple(values))


def plural(kind: str, number: str) -> str:
    """The word for things of a kind, 'dogs' for more than one."""
    return kind if number == "one" or kind == "sheep" else f"{kind}s"


def caption(picture: Picture, told: int) -> str:
    """A part of what is there: the first group, or the second, with one attribute or none, and sometimes the place.

    Args:
      picture: that it is of.
      told: which part, drawn by whoever makes the picture.
    """
    group, more = told % 2, told // 2 % 4
    kind, number = picture.word(block(group, KIND)), picture.word(block(group, NUMBER))
    if more == 1:
        return f"a picture with {number} {plural(kind, number)}"
    if more == 2:
        return f"a {picture.word(block(group, COLOUR))} {kind} and something else"
    if more == 3:
        return f"a {kind} in a {picture.word(PLACE)}"
    return f"a picture with a {kind}"
