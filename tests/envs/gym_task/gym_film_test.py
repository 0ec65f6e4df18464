"""Films of gymnasium environments: the pictures that they draw, and what was said."""

from __future__ import annotations

import base64
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from motif_jax.reports.terminal import picture_text
from tests.reward_fixtures import run_stage


def test_a_terminal_shows_a_picture_in_half_blocks():
    picture = np.zeros((5, 3, 3), np.uint8)
    picture[4, 2] = 255
    shown = picture_text(picture)
    assert shown.plain == "▀▀▀\n" * 3
    assert shown.spans[-1].style.color.triplet.hex == "#ffffff"


@pytest.mark.slow
def test_a_film_shows_the_pictures_that_an_environment_draws(tmp_path):
    named = {"name": "gym:ToyVault-v0", "modules": "tests.gym_toys", "text": "info:said"}
    values = {f"environment.{key}": value for key, value in named.items()}
    run_stage("visualize", tmp_path, **values, **{"forms.gif": True})
    page = (tmp_path / "episode-00000.html").read_text()
    film = json.loads(re.search(r'<script[^>]*id="film"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert 'id="picture"' in page
    assert len(film["pictures"]["index"]) == film["steps"] == 31
    assert 2 <= len(film["pictures"]["texts"]) <= 10, "a picture is stored once"
    first = Image.open(io.BytesIO(base64.b64decode(film["pictures"]["texts"][0])))
    shown = np.asarray(first)[10, ::20].max(axis=-1) > 0
    assert (first.size, shown.sum()) == ((100, 20), 1)
    with Image.open(tmp_path / "episode-00000.gif") as movie:
        assert movie.size[0] == 400
        frame = np.asarray(movie.convert("RGB"))
        np.testing.assert_array_equal(frame[40, 40::80].max(axis=-1) > 100, shown)
