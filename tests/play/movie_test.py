"""ttyrec3 files in NLE's own readers, and GIF."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image, ImageDraw

from motif_jax.envs.nethack.actions import TASK_KEYS
from motif_jax.play import watching
from motif_jax.play.films import movie, ttyrec
from tests.made_up_films import film


def test_nles_converter_reads_back_every_screen_key_and_score(tmp_path):
    from nle import _pyconverter as converter

    shot = film()
    path = tmp_path / f"a{ttyrec.SUFFIX}"
    path.write_bytes(ttyrec.encode(shot))
    n = len(shot)
    reader = converter.Converter(24, 80, 3)
    reader.load_ttyrec(str(path), gameid=1, part=0)
    chars = np.zeros((n, 24, 80), np.uint8)
    colors = np.zeros((n, 24, 80), np.int8)
    cursors = np.zeros((n, 2), np.int16)
    times = np.zeros(n, np.int64)
    inputs = np.zeros(n, np.uint8)
    scores = np.zeros(n, np.int32)
    left = reader.convert(chars, colors, cursors, times, inputs, scores)
    read = n - left
    assert read >= n - 1, "one frame per key pressed"
    np.testing.assert_array_equal(chars[:read], shot.chars[:read])
    visible = shot.chars[:read] != 32
    np.testing.assert_array_equal(colors[:read][visible], shot.colors[:read][visible])
    np.testing.assert_array_equal(inputs[: n - 1], [TASK_KEYS[a] for a in shot.actions])
    np.testing.assert_array_equal(scores[: n - 1], shot.vitals["score"][: n - 1])
    known = shot.cursor[: n - 1, 0] >= 0
    np.testing.assert_array_equal(cursors[: n - 1][known], shot.cursor[: n - 1][known])


def row_film(task_rewards):
    """A film of screens of one empty line, 168 pixels wide."""
    steps = len(task_rewards)
    return watching.Film(
        task="t",
        seed=0,
        title="t",
        action_names=("wait",),
        action_keys=(0,),
        chars=np.full((steps, 1, 24), ord(" "), np.uint8),
        colors=np.zeros((steps, 1, 24), np.uint8),
        cursor=np.full((steps, 2), -1, np.int16),
        actions=np.zeros(steps - 1, np.int32),
        played=np.zeros(steps - 1, np.int32),
        task_rewards=task_rewards,
        texts=[b""],
        text_index=np.zeros(steps, np.int32),
        text_count=np.ones(steps, np.int32),
    )


@pytest.mark.parametrize(
    "steps",
    [
        range(0, 60, 3),
        pytest.param([7, 7, 8, 8, 8, 9], id="some equal frames"),
        pytest.param([5, 5, 5], id="equal frames alone"),
        [5],
        [5, 6],
    ],
)
def test_a_gif_has_the_bytes_that_pillow_writes(steps):
    pictures = [Image.fromarray(movie.frame(film(), step, 10)) for step in steps]
    palette = pictures[0].quantize(256)
    images = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]

    encoded = movie.animated(iter(images), 83)

    buffer = io.BytesIO()
    options = {"duration": 83, "loop": 0, "optimize": False}
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:], **options)
    assert encoded == buffer.getvalue()


def test_letters_that_a_films_font_lacks_are_escaped() -> None:
    rare = dataclasses.replace(row_film(np.zeros(2)), action_names=("雪",))
    escaped = dataclasses.replace(rare, action_names=(r"\u96ea",))

    np.testing.assert_array_equal(movie.frame(rare, 0), movie.frame(escaped, 0))


@pytest.mark.parametrize("reward", [np.inf, -np.inf, np.nan, 1e300])
def test_a_reward_that_is_no_number_has_no_bar(reward):
    rewards = np.zeros(4)
    without = bars(rewards)
    rewards[2] = reward

    assert bars(rewards) == without


def bars(rewards):
    """The picture of the bars of rewards."""
    picture = Image.new("RGB", (100, 60))
    movie.draw_bars(ImageDraw.Draw(picture), rewards, 1, 100, 5)
    return picture.tobytes()


def test_lines_of_a_text_stand_in_one_of_the_movie():
    shot = film()
    drawn = [
        movie.frame(dataclasses.replace(shot, texts=[text] * len(shot.texts)), 3)
        for text in (b"a key\na door", b"a key a door", b"a key, a door")
    ]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()


BAR_HEIGHT = 46


def bar_columns(picture, colour):
    """Columns of the bars below a frame that have a colour."""
    has_colour = (picture[-BAR_HEIGHT:] == np.array(colour)).all(axis=-1)
    return np.flatnonzero(has_colour.any(axis=0)).tolist()


@pytest.mark.parametrize(("step", "column"), [(0, 4), (5, 84), (10, 164)])
def test_a_line_marks_the_step_between_margins_of_four_pixels(step, column):
    picture = np.asarray(movie.frame(row_film(np.zeros(11, np.float32)), step))

    assert bar_columns(picture, (255, 255, 255)) == [column]


def test_bars_stand_where_rewards_were_paid():
    rewards = np.zeros(11, np.float32)
    rewards[[2, 7]] = 1.0

    picture = movie.frame(row_film(rewards), 5)

    # What is still to come is grey.
    assert bar_columns(picture, movie.COLOURS[0]) == [4 + 112]
    assert bar_columns(picture, (194, 87, 12)) == [4 + 32]


def test_a_film_of_one_step_is_drawn():
    picture = movie.frame(row_film(np.zeros(1, np.float32)), 0)

    assert bar_columns(picture, (255, 255, 255)) == [4]
