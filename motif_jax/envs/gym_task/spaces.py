"""Turns gymnasium's observation spaces into fields of an `EnvironmentSpec`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from motif_jax.core.text_bytes import padded
from motif_jax.envs.gym_task.captions import SINGLE, text_bytes_of
from motif_jax.envs.spec import REST, ArraySpec

_MAX_VALUES = 4096  # of a one-hot
_INT32 = np.iinfo(np.int32)
_MAX_CHANNELS = 16  # of a picture whose channels are its first axis: four pictures in four colours
_MAX_COLOURS = 4
_LEAST_SIDE = 16  # of what is a picture without an axis of channels; less is a board
_LEAST_BOARD = 8  # side of a board whose channels may be its first axis


class UnsupportedSpaceError(ValueError):
    """A space that this package's networks cannot read."""


class MisfitError(ValueError):
    """An observation that is not of its space."""


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A space without subspaces; `path` are the keys and indices that lead to it, `encode` makes
    its `field`'s array.

    `image`: it is a picture uint8 [height, width, channels]. `suffix` is that of the field's name.
    """

    space: gymnasium.Space
    path: tuple[Any, ...]
    field: ArraySpec
    encode: Callable[[Any], Any]
    image: bool = False
    suffix: str = ""

    @property
    def name(self) -> str:
        """The path joined with dots; 'observation' for a single space."""
        return (".".join(map(str, self.path)) or SINGLE) + self.suffix

    def write(self, observation: Any, out: np.ndarray) -> None:
        """Writes its part of `observation` into `out`. Raises MisfitError: the part is missing, or
        differs from its space such that numpy would bend it without an error.
        """
        value = observation
        try:
            for key in self.path:
                value = value[key]
        except (LookupError, TypeError):
            raise MisfitError(f"{self.name!r} is missing") from None
        misfit = self._misfit(value, out.dtype)
        if misfit:
            raise MisfitError(f"{self.name!r} {misfit}")
        out[...] = self.encode(value)

    def _misfit(self, value: Any, dtype: np.dtype) -> str:
        """How `value` differs from the space such that its field of this dtype cannot have it; ''
        where it fits. Every step of a game asks: what it compares is cheap.
        """
        space = self.space
        if isinstance(space, gymnasium.spaces.Discrete):
            number = np.asarray(value)
            fits = number.ndim == 0 and number.dtype.kind in "iub"
            fits = fits and bool(0 <= int(number) - space.start < space.n)
            return "" if fits else f"is {value}, outside {space}"
        array = np.asarray(value)
        if isinstance(space, gymnasium.spaces.MultiDiscrete):
            fits = array.shape == space.shape and array.dtype.kind in "iub"
            if fits:
                offset = array - space.start
                fits = bool((offset >= 0).all() and (offset < space.nvec).all())
            return "" if fits else f"is {value}, outside {space}"
        if not isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.MultiBinary):
            return ""
        if array.shape != space.shape:
            return f"has shape {list(array.shape)}, its space {list(space.shape)}"
        # Floats take any number, and equal dtypes are copied as they are. Others numpy would cut or
        # wrap without an error.
        if dtype.kind == "f" or array.dtype == dtype:
            return ""
        if array.dtype.kind not in "iub":
            return f"has dtype {array.dtype}, its space {space.dtype}"
        if (array.astype(dtype) == array).all():
            return ""
        return f"has numbers from {array.min()} to {array.max()}, outside {dtype}"


def leaves(space: gymnasium.Space, text_bytes: int, path: tuple[Any, ...] = ()) -> Iterator[Leaf]:
    """The leaves of `space` in order; texts become bytes [text_bytes] divided by 255, discrete
    values one-hot. Numbers of 64 bits have a second leaf with what float32 rounds away.

    Raises UnsupportedSpaceError: a space is not Box, Discrete, MultiDiscrete, MultiBinary, Text,
    Dict or Tuple.
    """
    if isinstance(space, gymnasium.spaces.Dict):
        for key, part in space.spaces.items():
            yield from leaves(part, text_bytes, (*path, key))
    elif isinstance(space, gymnasium.spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from leaves(part, text_bytes, (*path, index))
    else:
        leaf = Leaf(space, path, *_encoding(space, text_bytes, ".".join(map(str, path)) or "it"))
        yield leaf
        is_wide = isinstance(space, gymnasium.spaces.Box) and np.dtype(space.dtype).itemsize > 4
        if is_wide and leaf.field.dtype == "float32":
            yield Leaf(space, path, leaf.field, _rounded_away, suffix=REST)


def _encoding(space: gymnasium.Space, text_bytes: int, name: str) -> tuple:
    """`field` and `encode` of a leaf, and `image` if it is a picture; `name` is for the error."""
    if isinstance(space, gymnasium.spaces.Box):
        return _box(space)
    if isinstance(space, gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete):
        size = gymnasium.spaces.flatdim(space)
        if size > _MAX_VALUES:
            raise UnsupportedSpaceError(
                f"{name} has {size:,} discrete values, more than {_MAX_VALUES:,}"
            )
        field = ArraySpec((size,), "uint8")
        return field, lambda value: gymnasium.spaces.flatten(space, np.asarray(value))
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return ArraySpec(tuple(space.shape), "uint8"), np.asarray
    # minigrid's mission is a text, but its space is not gymnasium.spaces.Text.
    if isinstance(space, gymnasium.spaces.Text) or getattr(space.dtype, "kind", "") == "U":
        scale = np.float32(1 / 255)
        field = ArraySpec((text_bytes,), "float32")
        return field, lambda text: padded(text_bytes_of(text), text_bytes) * scale
    raise UnsupportedSpaceError(f"{name} is a {type(space).__name__}")


def _box(space: gymnasium.spaces.Box) -> tuple:
    shape = tuple(space.shape)
    kind = np.dtype(space.dtype).kind
    arrange = _arrangement(shape) if space.dtype == np.uint8 else None
    if arrange is not None:
        return ArraySpec(arrange(np.empty(shape, np.uint8)).shape, "uint8"), arrange, True
    if space.dtype == np.uint8:
        # Bytes that are no picture, such as a console's memory, are scaled by their greatest value.
        scale = np.float32(1 / max(1, int(space.high.max(initial=1))))
        return ArraySpec(shape, "float32"), lambda value: np.asarray(value, np.float32) * scale
    if kind == "b":
        return ArraySpec(shape, "uint8"), np.asarray
    # Whole numbers stay whole where int32 holds them.
    low = space.low.min(initial=0)
    high = space.high.max(initial=0)
    fits_int32 = kind in "iu" and low >= _INT32.min and high <= _INT32.max
    return ArraySpec(shape, "int32" if fits_int32 else "float32"), np.asarray


def _rounded_away(value: Any) -> np.ndarray:
    """What float32 loses of numbers of 64 bits: float32 of their shape, 0 where they are not
    finite.
    """
    exact = np.asarray(value, np.longdouble)
    rounded = np.asarray(value).astype(np.float32)
    finite = np.isfinite(rounded)
    return np.where(finite, exact - np.where(finite, rounded, 0), 0).astype(np.float32)


def _arrangement(shape: tuple[int, ...]) -> Callable[[Any], np.ndarray] | None:
    """What makes [height, width, channels] of a picture uint8 of `shape`; None: it is not a
    picture.

    Colours may come first, pictures without colours may have two axes, and several pictures may be
    stacked in front.
    """
    if len(shape) == 3 and _has_channels_first(shape):
        return lambda picture: np.moveaxis(np.asarray(picture), 0, -1)
    if len(shape) == 3:
        return np.asarray
    # [height, width]: one channel is added.
    if len(shape) == 2 and min(shape) >= _LEAST_SIDE:
        return lambda picture: np.asarray(picture)[..., None]
    # [pictures, height, width, colours]: a channel for each colour of each picture.
    if len(shape) == 4 and shape[-1] <= _MAX_COLOURS and min(shape[1:3]) >= _LEAST_SIDE:
        height, width = shape[1:3]
        return lambda pictures: np.moveaxis(np.asarray(pictures), 0, 2).reshape(height, width, -1)
    # [pictures, colours, height, width], likewise.
    if len(shape) == 4 and shape[1] <= _MAX_COLOURS and min(shape[2:]) >= _LEAST_SIDE:
        height, width = shape[2:]
        return lambda pictures: np.moveaxis(np.asarray(pictures), (0, 1), (2, 3)).reshape(
            height, width, -1
        )
    return None


def _has_channels_first(shape: tuple[int, ...]) -> bool:
    """Whether three axes are [channels, height, width]: few channels, before a picture or before a
    board that is not small.

    Planes of a board, such as one-hot [7, 7, 20] and Go's [9, 9, 17], are many, and come last.
    """
    channels, *sides = shape
    if channels > _MAX_CHANNELS or channels >= min(sides) or min(sides) < _LEAST_BOARD:
        return False
    is_square = sides[0] == sides[1]
    return channels <= _MAX_COLOURS or is_square or min(sides) >= _LEAST_SIDE
