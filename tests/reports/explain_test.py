"""The page of a reward: what it shows, and that a game's text cannot break it."""

from __future__ import annotations

import html as html_parser
import re

import numpy as np
import pytest

from motif_jax.reports import explain
from motif_jax.reports.explain import ExplainedReward, Explanation
from tests import browser

HOSTILE = "</script><script>document.title='broken'</script><b>\"'&"
MESSAGES = ["You see here a key.", HOSTILE, "", "It's solid stone.", "You kill the newt!"]
COUNTS = np.array([10, 1, 500, 80, 3])


def reward(name, values, threshold=0.2, ensemble=False):
    values = np.array(values, float)
    history = np.stack([values * 0, values / 2, values])
    curve = [
        {
            "epoch": i,
            "validation/loss": 0.7 - 0.1 * i,
            "validation/accuracy": 0.5 + 0.2 * i,
            "train/loss": 0.6,
        }
        | {f"reward/quantile_{level:02d}": level / 50 - 1 for level in range(5, 100, 5)}
        for i in range(3)
    ]
    curve[-1]["calibration"] = [{"confidence": 0.6, "accuracy": 0.5, "pairs": 3}]
    curve[-1]["validation/calibration_error"] = 0.1
    spread = np.abs(values) / 10 if ensemble else None
    return ExplainedReward(name, values * 3, values, threshold, 0.5, spread, history, [0, 1, 2], curve)


@pytest.fixture
def one():
    return Explanation(MESSAGES, COUNTS, [reward("default", [1.5, 0.2, -1, -0.5, 0.3])], source="games")


@pytest.fixture
def two(one):
    other = reward("combat", [-1.0, 0.1, -1, 0.0, 2.5], ensemble=True)
    typed = [reward("default", [0.7]), reward("combat", [0.1], ensemble=True)]
    return Explanation(MESSAGES, COUNTS, [*one.rewards, other], [HOSTILE], typed, "games")


def body_rows(page, table="messages"):
    part = re.search(rf'<table id="{table}".*?<tbody>(.*?)</tbody>', page, re.S).group(1)
    return [
        [html_parser.unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<td.*?</td>", row, re.S)]
        for row in re.findall(r"<tr>(.*?)</tr>", part, re.S)
    ]


def test_rows_are_ordered_with_the_threshold_between_them(one):
    rows = body_rows(explain.render(one, "now"))
    assert [row[0] for row in rows][:2] == ["You see here a key.", "You kill the newt!"]
    assert "threshold 0.200" in rows[2][0]
    # The threshold is strict: a reward that equals it pays nothing.
    assert rows[3][0] == HOSTILE
    assert rows[3][4] == "—"
    assert rows[0][1:5] == ["10", "+1.500", "4.5", "1.500"]
    assert rows[-1][0] == "(no message)"


def test_hostile_text_stays_text(two):
    page = explain.render(two, "now")
    assert "<script>document.title" not in page
    assert body_rows(page, "typed")[0][0] == HOSTILE


def test_only_the_most_frequent_rows_are_shown(one):
    page = explain.render(one, "now", max_rows=2)
    shown = [row[0] for row in body_rows(page) if "threshold" not in row[0]]
    assert sorted(shown) == ["(no message)", "It's solid stone."]
    assert "messages.csv has all" in page


def test_two_rewards_have_a_difference_and_a_correlation(two):
    page = explain.render(two, "now")
    row = next(row for row in body_rows(page) if row[0] == "You kill the newt!")
    assert row[-1] == "+2.200"
    assert "rank correlation" in page
    assert "disagreement · combat" in page


def test_rank_correlation_of_known_cases():
    assert explain.rank_correlation(np.array([1.0, 2, 3]), np.array([10.0, 20, 99])) == pytest.approx(1)
    assert explain.rank_correlation(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1)
    assert explain.rank_correlation(np.array([1.0, 1, 2, 3]), np.array([1.0, 1, 2, 3])) == pytest.approx(1)
    assert np.isnan(explain.rank_correlation(np.ones(3), np.arange(3.0)))
    assert np.isnan(explain.rank_correlation(np.ones(1), np.ones(1)))


def test_nothing_at_all_is_a_page_too():
    empty = ExplainedReward("x", np.zeros(0), np.zeros(0), None, None, None, np.zeros((1, 0)), [0], [])
    page = explain.render(Explanation([], np.zeros(0, int), [empty]), "now")
    assert "there are no messages" in page


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_searches_and_sorts(two, tmp_path):
    browser.require_browser()
    (tmp_path / "explain.html").write_text(explain.render(two, "now"), encoding="utf-8")
    with browser.open_browser(tmp_path) as driver:
        driver.get(f"file://{tmp_path}/explain.html")
        assert driver.title == "What the reward likes"
        script = (
            "return [...document.getElementById('messages').tBodies[0].rows].filter(r => !r.hidden)"
            ".map(r => r.cells[0].innerText)"
        )
        assert len(driver.execute_script(script)) == 6
        driver.find_element("css selector", "input[type=search]").send_keys("newt")
        assert driver.execute_script(script) == ["You kill the newt!"]
        driver.find_element("css selector", "input[type=search]").clear()
        driver.find_element("css selector", "input[type=search]").send_keys(" ")
        driver.find_elements("css selector", "#messages th button")[1].click()
        driver.find_elements("css selector", "#messages th button")[1].click()
        assert browser.errors(driver) == []
