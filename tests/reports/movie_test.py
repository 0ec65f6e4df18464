"""ttyrec3 files in NLE's own readers, GIF and MP4."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageSequence

from motif_jax.envs.nethack.actions import TASK_KEYS
from motif_jax.reports import movie, ttyrec
from tests.made_up_films import film


def test_nles_converter_reads_back_every_screen_key_and_score(tmp_path):
    from nle import _pyconverter as converter

    shot = film()
    path = tmp_path / f"a{ttyrec.SUFFIX}"
    path.write_bytes(ttyrec.encode(shot))
    n = len(shot)
    reader = converter.Converter(24, 80, 3)
    reader.load_ttyrec(str(path), gameid=1, part=0)
    chars, colors = np.zeros((n, 24, 80), np.uint8), np.zeros((n, 24, 80), np.int8)
    cursors, times = np.zeros((n, 2), np.int16), np.zeros(n, np.int64)
    inputs, scores = np.zeros(n, np.uint8), np.zeros(n, np.int32)
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
    ("chosen", "shown"),
    [(range(0, 60, 30), [100, 100]), ([7, 7, 8, 9, 9], [200, 100, 200]), ([5, 5, 5], [300])],
)
def test_a_gif_shows_its_steps_and_joins_equal_ones(chosen, shown):
    shot = film()
    with Image.open(io.BytesIO(movie.gif(shot, list(chosen), 10.0))) as picture:
        frames = [
            (frame.info["duration"], np.asarray(frame.convert("RGB")))
            for frame in ImageSequence.Iterator(picture)
        ]
    assert [duration for duration, _ in frames] == shown
    for (_, pixels), step in zip(frames, dict.fromkeys(chosen), strict=True):
        expected = movie.frame(shot, step, 10).astype(int)
        assert pixels.shape == expected.shape
        # Half-tones of letters take the nearest colour of the palette.
        assert np.abs(pixels - expected).mean() < 2
