from __future__ import annotations

import base64
import io
import itertools
import json
import re

import numpy as np
import pytest
from PIL import Image

from motif_jax.play.terminal import picture_text
from tests.gym_toys import Vault
from tests.reward_fixtures import run_stage


def test_a_terminal_shows_a_picture_in_half_blocks():
    picture = np.zeros((5, 3, 3), np.uint8)
    picture[4, 2] = 255
    shown = picture_text(picture)
    assert shown.plain == "▀▀▀\n" * 3
    assert shown.spans[-1].style.color.triplet.hex == "#ffffff"


@pytest.fixture(scope="module")
def film_folder(tmp_path_factory):
    """What visualize writes of an episode of the vault, whose 30 steps are its limit."""
    folder = tmp_path_factory.mktemp("film")
    environment = {"name": "gym:ToyVault-v0", "modules": "tests.gym_toys", "text": "info:said"}
    values = {f"environment.{key}": value for key, value in environment.items()}
    run_stage("visualize", folder, **values, **{"forms.gif": True})
    return folder


@pytest.mark.slow
def test_a_film_shows_each_picture_that_an_environment_draws(film_folder):
    page = (film_folder / "episode-00000.html").read_text()
    film = json.loads(re.search(r'<script[^>]*id="film"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    encoded = [base64.b64decode(text) for text in film["pictures"]["texts"]]
    pictures = [np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for data in encoded]

    assert 'id="picture"' in page
    assert len(film["pictures"]["index"]) == 31
    assert set(film["pictures"]["index"]) == set(range(len(pictures)))
    cells = [_lit_cell(picture) for picture in pictures]
    # A picture is stored once, however often it is shown.
    assert len(set(cells)) == len(pictures)
    shown = [cells[number] for number in film["pictures"]["index"]]
    places = [cell for cell, _ in shown]
    assert all(abs(after - before) <= 1 for before, after in itertools.pairwise(places))


@pytest.mark.slow
def test_a_gif_has_a_frame_for_each_step(film_folder):
    with Image.open(film_folder / "episode-00000.gif") as image:
        assert image.n_frames == 31


def _lit_cell(picture):
    """The cell of the hero in a picture of the vault, and its colour; the other cells are black."""
    assert picture.shape == (20, 20 * Vault.CELLS, 3)
    (cell,) = (n for n in range(Vault.CELLS) if picture[0, 20 * n].any())
    colour = picture[0, 20 * cell]
    expected = np.zeros_like(picture)
    expected[:, 20 * cell : 20 * (cell + 1)] = colour
    np.testing.assert_array_equal(picture, expected)
    assert tuple(colour) in ((255, 200, 0), (200, 200, 200))
    return cell, tuple(colour)
