"""The page of a reward: what it shows, and that a game's text cannot break it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from motif_jax.reports import explain
from motif_jax.reports.explain_data import ExplainedReward, Explanation
from tests import browser

HOSTILE = "</script><script>document.title='broken'</script><b>\"'&"
MESSAGES = ["You see here a key.", HOSTILE, "", "It's solid stone.", "You kill the newt!"]
COUNTS = np.array([10, 1, 500, 80, 3])


def reward(name, values, threshold=0.2, ensemble=False):
    values = np.array(values, float)
    history = np.stack([values * 0, values / 2, values])
    quantiles = {f"reward/quantile_{level:02d}": level / 50 - 1 for level in range(5, 100, 5)}
    held_out = [{"validation/loss": 0.7 - 0.1 * i, "validation/accuracy": 0.5 + 0.2 * i} for i in range(3)]
    curve = [{"epoch": i, "train/loss": 0.6, **quantiles, **of} for i, of in enumerate(held_out)]
    curve[-1]["calibration"] = [{"confidence": 0.6, "accuracy": 0.5, "pairs": 3}]
    curve[-1]["validation/calibration_error"] = 0.1
    spread = np.abs(values) / 10 if ensemble else None
    paid = values if threshold is None else np.where(values <= threshold, 0.0, values)
    return ExplainedReward(name, values * 3, values, paid, threshold, spread, history, [0, 1, 2], curve)


@pytest.fixture
def two():
    one = reward("default", [1.5, 0.2, -1, -0.5, 0.3])
    other = reward("combat", [-1.0, 0.1, -1, 0.0, 2.5], ensemble=True)
    typed = [reward("default", [0.7]), reward("combat", [0.1], ensemble=True)]
    return Explanation(MESSAGES, COUNTS, [one, other], [HOSTILE], typed, "games", [0])


def test_hostile_text_stays_text(two):
    page = explain.render(two, "now", 9)
    assert HOSTILE not in page
    assert page.count("</script>") == page.count("<script")


def test_texts_without_a_reward_are_shown_unrated(two):
    values = [np.nan, 1.0, np.nan, -0.75, 0.125]
    some, none = (reward("some", of, threshold=None, ensemble=True) for of in (values, [np.nan] * 5))
    shown = explain.render(Explanation(MESSAGES, COUNTS, [some], source="s"), "now", 2)
    plain = reward("plain", [2.0] * 5)._replace(
        curve=[{"epoch": 0}], history=np.full((1, 5), 2.0), evaluations=[0]
    )
    typed = [reward("default", [0.5, -0.5]), reward("plain", [0.25, 0.1])]
    few = two._replace(
        rewards=[two.rewards[0], plain], texts=["typed", "new"], text_counts=[1500, 0], typed=typed
    )
    pair = [Explanation(MESSAGES, COUNTS, [some, other]) for other in (two.rewards[1], none)]
    for page in (shown, explain.render(few, "now", 9)):
        assert page.rstrip().endswith("</html>")
    assert all("nan" not in explain.scatter(one) for one in pair)
    assert "nan" not in explain.histogram(none, COUNTS.astype(float), "x")


def test_ranks_are_compared_of_the_texts_that_both_rate():
    values = np.array([np.nan, 1.0, np.nan, -0.75, 0.125])

    assert explain.rank_correlation(values, np.array([9, 1, 9, 0, 0.5])) == pytest.approx(1)


def test_a_bar_round_the_threshold_is_paid_in_part():
    # In 60 bars from 0 to 6, 3.001 and 3.003 share one; the threshold lies between them, and is itself unpaid.
    values = [0.0, 3.001, 3.002, 3.003, 6.0]
    counts = np.array([10.0, 30.0, 40.0, 15.0, 5.0])
    drawn = explain.histogram(reward("r", values, threshold=3.002), counts, "steps")
    titles = re.findall(r"<title>\S+ to \S+: (\S+) % (\w+)</title>", drawn)
    shares = {word: sum(float(share) for share, of in titles if of == word) for word in ("paid", "unpaid")}
    assert shares == {"paid": 20.0, "unpaid": 80.0}


def test_without_a_threshold_every_bar_is_paid():
    drawn = explain.histogram(reward("r", [0.0, -1.0], threshold=None), np.ones(2), "once")
    assert "unpaid" not in drawn


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_searches_and_sorts(two, tmp_path):
    (tmp_path / "explain.html").write_text(explain.render(two, "now", 9), encoding="utf-8")
    with browser.open_browser() as driver:
        driver.get(f"file://{tmp_path}/explain.html")
        assert driver.title == "What the reward likes"

        def texts():
            return [row[0] for row in browser.rows(driver, "messages")]

        def click(title):
            heads = driver.find_elements("css selector", "#messages th button")
            next(head for head in heads if head.text == title).click()

        key, newt, stone, nothing = MESSAGES[0], MESSAGES[4], MESSAGES[3], "(no message)"
        assert texts() == [key, newt, HOSTILE, stone, nothing]
        rows = browser.rows(driver, "messages")
        assert (rows[0][1:6], rows[2][4], rows[1][-1]) == (
            ["10", "+1.500", "4.5", "1.500", "+1.500"],
            "—",
            "+2.200",
        )
        for title, order in (
            ("normalised · default", [key, newt, HOSTILE, stone, nothing]),
            ("normalised · default", [nothing, stone, HOSTILE, newt, key]),
            ("seen (times)", [nothing, stone, key, newt, HOSTILE]),
            ("seen (times)", [HOSTILE, newt, key, stone, nothing]),
            ("difference", [newt, stone, nothing, HOSTILE, key]),
            ("message", [key, newt, stone, HOSTILE, nothing]),
        ):
            click(title)
            assert texts() == order
        field = driver.find_element("css selector", "input[type=search]")
        field.send_keys("newt")
        assert texts() == [newt]
        assert driver.find_element("css selector", ".count").text == "1 of 5 rows"
        assert browser.errors(driver) == []
