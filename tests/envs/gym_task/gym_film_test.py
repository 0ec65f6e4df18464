from __future__ import annotations

import base64
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from motif_jax.play.terminal import picture_text
from tests.recorded_outputs import assert_matches_packed_recording, of_folder, shown_array
from tests.reward_fixtures import run_stage


def test_a_terminal_shows_a_picture_in_half_blocks():
    picture = np.zeros((5, 3, 3), np.uint8)
    picture[4, 2] = 255
    shown = picture_text(picture)
    assert shown.plain == "▀▀▀\n" * 3
    assert shown.spans[-1].style.color.triplet.hex == "#ffffff"


@pytest.mark.slow
def test_a_film_shows_the_pictures_that_an_environment_draws(tmp_path, record):
    named = {"name": "gym:ToyVault-v0", "modules": "tests.gym_toys", "text": "info:said"}
    values = {f"environment.{key}": value for key, value in named.items()}
    run_stage("visualize", tmp_path, **values, **{"forms.gif": True})
    page = (tmp_path / "episode-00000.html").read_text()
    assert 'id="picture"' in page
    film = json.loads(re.search(r'<script[^>]*id="film"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    pictures = [base64.b64decode(text) for text in film["pictures"].pop("texts")]
    drawn = {f"{n}": shown_array(Image.open(io.BytesIO(data))) for n, data in enumerate(pictures)}
    gif = of_folder(tmp_path, {})["episode-00000.gif"]
    assert_matches_packed_recording("gym_film", {**drawn, "film": str(film["pictures"]), "gif": gif}, record)
