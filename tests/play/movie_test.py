"""ttyrec3 files in NLE's own readers, and GIF."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from motif_jax.envs.nethack.actions import TASK_KEYS
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


def test_lines_of_a_text_stand_in_one_of_the_movie():
    shot = film()
    drawn = [
        movie.frame(dataclasses.replace(shot, texts=[text] * len(shot.texts)), 3)
        for text in (b"a key\na door", b"a key a door", b"a key, a door")
    ]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
