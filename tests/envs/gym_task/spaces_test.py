"""Pictures of all arrangements become [height, width, channels]."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from motif_jax.envs.gym_task.spaces import Leaf, leaves


def leaf_of(shape: tuple[int, ...]) -> Leaf:
    (leaf,) = leaves(spaces.Box(0, 255, shape, np.uint8), 256)
    return leaf


def written(shape: tuple[int, ...], picture: np.ndarray) -> np.ndarray:
    leaf = leaf_of(shape)
    out = np.zeros(leaf.field.shape, leaf.field.dtype)
    leaf.write(picture, out)
    return out


def drawn(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def test_a_picture_with_its_channels_last_stays_as_it_is() -> None:
    picture = drawn((20, 30, 3))

    np.testing.assert_array_equal(written(picture.shape, picture), picture)


@pytest.mark.parametrize(
    "exact",
    [
        np.array([1.7e9 + 1, -0.1, 1e300, np.inf]),
        np.array([2**40 + 1, -(2**50) - 3], np.int64),
        np.array([2**40 + 1], np.uint64),
    ],
)
def test_numbers_of_64_bits_come_in_two_parts(exact: np.ndarray) -> None:
    space = spaces.Box(-np.inf, np.inf, exact.shape, np.float64)
    if exact.dtype.kind in "iu":
        bounds = np.iinfo(exact.dtype)
        space = spaces.Box(bounds.min, bounds.max, exact.shape, exact.dtype)
    parts = []
    for leaf in leaves(space, 256):
        out = np.zeros(leaf.field.shape, leaf.field.dtype)
        with np.errstate(over="ignore"):
            leaf.write(exact, out)
        parts.append(out)

    assert [leaf.name for leaf in leaves(space, 256)] == ["observation", "observation.rest"]
    total = np.sum(parts, axis=0, dtype=np.longdouble)
    held = np.abs(exact) < 1e30
    np.testing.assert_allclose(total[held], exact[held], rtol=1e-14)
    assert np.isfinite(parts[1]).all()


@pytest.mark.parametrize("channels", [1, 3, 4, 12])
def test_channels_that_come_first_are_moved_behind(channels: int) -> None:
    picture = drawn((channels, 20, 30))

    out = written(picture.shape, picture)

    assert out.shape == (20, 30, channels)
    np.testing.assert_array_equal(out[5, 7], picture[:, 5, 7])


def test_a_grey_picture_gets_a_channel() -> None:
    picture = drawn((84, 84))

    np.testing.assert_array_equal(written(picture.shape, picture)[..., 0], picture)


def test_stacked_colour_pictures_are_concatenated_along_the_channels() -> None:
    pictures = drawn((4, 20, 30, 3))

    out = written(pictures.shape, pictures)

    assert out.shape == (20, 30, 12)
    np.testing.assert_array_equal(out[5, 7], pictures[:, 5, 7].reshape(12))


def test_stacked_pictures_with_their_channels_first_are_one_picture() -> None:
    pictures = drawn((4, 3, 20, 30))

    out = written(pictures.shape, pictures)

    assert out.shape == (20, 30, 12)
    np.testing.assert_array_equal(out[5, 7], pictures[:, :, 5, 7].reshape(12))


@pytest.mark.parametrize(
    ("shape", "arranged"),
    [
        # minigrid's one-hot cells and Go's planes have more channels than cells.
        ((7, 7, 20), (7, 7, 20)),
        ((9, 9, 17), (9, 9, 17)),
        ((8, 9, 17), (8, 9, 17)),
        ((10, 10, 4), (10, 10, 4)),
        ((4, 5, 5), (4, 5, 5)),
        ((3, 16, 16), (16, 16, 3)),
        ((4, 10, 10), (10, 10, 4)),
        ((3, 20, 10), (20, 10, 3)),
        ((12, 84, 84), (84, 84, 12)),
    ],
)
def test_channels_come_first_where_they_are_few(
    shape: tuple[int, ...], arranged: tuple[int, ...]
) -> None:
    assert leaf_of(shape).field.shape == arranged


@pytest.mark.parametrize("shape", [(7,), (8, 8), (2, 5, 5, 3), (4, 20, 30, 9)])
def test_boards_are_no_pictures(shape: tuple[int, ...]) -> None:
    leaf = leaf_of(shape)

    assert not leaf.image
    assert leaf.field.shape == shape


@pytest.mark.parametrize("shape", [(7, 7, 3), (84, 84, 1), (64, 64, 4), (20, 30, 3)])
def test_minigrids_and_other_pictures_keep_their_axes(shape: tuple[int, ...]) -> None:
    leaf = leaf_of(shape)

    assert leaf.image
    assert leaf.field.shape == shape
