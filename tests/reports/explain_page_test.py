"""The page of a reward in a real browser: how it looks."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.reports import explain
from motif_jax.reports.explain import Explanation
from tests import browser
from tests.made_up_runs import HOSTILE
from tests.reports.explain_test import reward

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    browser.require_browser()
    folder = tmp_path_factory.mktemp("explain")
    generator = np.random.default_rng(0)
    texts = ["You see here a key.", HOSTILE, "", *(f"You kill the newt number {i}!" for i in range(40))]
    names = ("reward_defaultgoal", "reward_combat")
    rewards = [reward(name, generator.normal(0, 1, len(texts)), ensemble=True) for name in names]
    counts = generator.integers(1, 9000, len(texts))
    typed = [reward(name, [value], ensemble=True) for name, value in zip(names, (0.7, 0.1), strict=True)]
    page = explain.render(Explanation(texts, counts, rewards, [HOSTILE], typed, "games", [0]), "2026-01-01")
    (folder / "explain.html").write_text(page, encoding="utf-8")
    with browser.open_browser() as driver:
        driver.get(f"file://{folder}/explain.html")
        yield driver, folder


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (420, True), (1400, True), (420, False)])
def test_it_fits_and_can_be_read(opened, width, dark):
    driver, folder = opened
    browser.check_look(driver, folder / f"explain-{width}-{'dark' if dark else 'light'}.png", width, dark)


def test_all_columns_of_two_rewards_are_seen_on_a_usual_screen(opened):
    driver, _ = opened
    browser.view(driver, 1400, 900)
    script = (
        "return [...document.querySelectorAll('.scroll')].map(table => table.scrollWidth - table.clientWidth)"
    )
    assert max(driver.execute_script(script)) <= 0


def test_game_text_is_text(opened):
    driver, _ = opened
    assert driver.title == "What the reward likes"
    assert driver.find_elements("css selector", "td b") == []
    assert HOSTILE in [cell.text for cell in driver.find_elements("css selector", "#typed td")]
