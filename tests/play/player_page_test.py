"""The player of an episode in a real browser: what it shows is what was filmed."""

from __future__ import annotations

import base64
import time

import numpy as np
import pytest

from motif_jax.play.films import player
from motif_jax.play.messages import as_text
from tests import browser
from tests.made_up_films import film, grid_film

pytestmark = pytest.mark.browser


def opened(one, path):
    """A browser with the player of a film."""
    path.write_text(player.render(one), encoding="utf-8")
    with browser.open_browser() as driver:
        driver.get(f"file://{path}")
    deadline = time.monotonic() + 60
    while not driver.execute_script("return document.documentElement.dataset.ready"):
        assert time.monotonic() < deadline, browser.errors(driver)
        time.sleep(0.02)
    return driver


@pytest.fixture
def driver(tmp_path):
    return opened(film(), tmp_path / "player.html")


def fact(driver, name):
    return driver.execute_script(
        f"return document.querySelector('[data-fact=\"{name}\"]').textContent"
    )


def text_of(driver, name):
    return driver.execute_script("return document.getElementById(arguments[0]).textContent", name)


def seek(driver, step):
    driver.execute_script(
        "const s = document.getElementById('seek'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))",
        step,
    )


def press(driver, *keys):
    from selenium.webdriver import ActionChains

    ActionChains(driver).send_keys(*keys).perform()


def test_every_step_shows_what_was_filmed(driver):
    shot = film()
    for step in (0, 1, 60, 77, len(shot) - 2):
        seek(driver, step)
        rows = shot.chars[step].tolist()
        expected = ["".join(chr(c) if 32 <= c < 127 else " " for c in row) for row in rows]
        assert text_of(driver, "screen").split("\n") == expected
        assert (
            text_of(driver, "message").strip() == as_text(shot.texts[shot.text_index[step]]).strip()
        )
        numbers = {
            "intrinsic reward here": (shot.intrinsic[step], 6e-4),
            "intrinsic return so far": (shot.intrinsic[: step + 1].sum(), 1e-2),
            "return so far": (shot.task_rewards[: step + 1].sum(), 1e-2),
            "value estimate": (shot.values[step], 6e-4),
            "message seen (times)": (shot.text_count[step], 0),
        }
        for name, (value, apart) in numbers.items():
            assert float(fact(driver, name).replace(",", "")) == pytest.approx(value, abs=apart), (
                name
            )
        assert fact(driver, "next action") == shot.action_names[shot.actions[step]]
        row = driver.find_element("css selector", "#probabilities .chosen").text.split("\n")
        assert row[0] == shot.action_names[shot.actions[step]]
        share = shot.probabilities[step, shot.actions[step]]
        assert int(row[-1].rstrip(" %")) == pytest.approx(100 * share, abs=1.01)


def test_keys_buttons_and_jumps(driver):
    from selenium.webdriver.common.keys import Keys

    shot = film()
    paid = np.flatnonzero(np.abs(shot.intrinsic) > 0.005)
    step = lambda: int(driver.execute_script("return document.getElementById('seek').value"))  # noqa: E731
    press(driver, Keys.END)
    assert step() == len(shot) - 1
    press(driver, Keys.HOME)
    assert step() == 0
    press(driver, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert step() == 1
    press(driver, "n")
    assert step() == paid[paid > 1][0]
    press(driver, "n", "p")
    assert step() == paid[paid > 1][0]
    driver.find_elements("css selector", "#moments button")[-1].click()
    assert step() == paid[-1]
    assert len(driver.find_elements("css selector", "#moments button")) == len(paid)
    driver.find_element("id", "restart").click()
    # So slowly that it is not at its end by itself before the next key, which would start it again
    # there: that takes over a minute.
    driver.execute_script("document.getElementById('speed').value = '2'")
    press(driver, " ")
    deadline = time.monotonic() + 60
    while step() < 1:
        assert time.monotonic() < deadline, "it plays"
        time.sleep(0.02)
    press(driver, " ")
    stopped = step()
    time.sleep(0.8)  # it would continue after half a second
    assert step() == stopped
    assert driver.find_element("id", "play").text == "play"


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (420, True)])
def test_it_fits_and_shows_no_errors(driver, tmp_path, width, dark):
    seek(driver, 60)
    browser.check_look(driver, tmp_path / "player.png", width, dark, contrast=4.0)


def test_a_grid_is_shown_as_minigrid_draws_it(tmp_path):
    shot = grid_film()
    assert len(shot.pictures) == len(shot)
    assert len(set(shot.pictures)) > 5
    driver = opened(shot, tmp_path / "grid.html")
    for step in (0, 7, len(shot) - 1):
        seek(driver, step)
        picture = (
            driver.find_element("id", "picture")
            .get_attribute("src")
            .removeprefix("data:image/png;base64,")
        )
        assert base64.b64decode(picture) == shot.pictures[step]
        message = shot.texts[shot.text_index[step]].rstrip(b"\0").decode("latin-1")
        assert text_of(driver, "message") == (message or "\xa0")
        assert text_of(driver, "note-mission") == shot.notes["mission"][step]
        assert text_of(driver, "note-prompt") == shot.notes["prompt"][step]
    seek(driver, 3)
    press(driver, "\ue012")  # left
    assert driver.execute_script("return step") == 2
    for width, dark in ((420, True), (1400, False)):
        browser.check_look(driver, tmp_path / f"grid_{width}.png", width, dark)
