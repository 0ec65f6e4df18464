"""The page of a reward: what it shows, and that a game's text cannot break it."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.reports import explain
from motif_jax.reports.explain_data import ExplainedReward, Explanation
from tests import browser
from tests.recorded_outputs import compared

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
def one():
    return Explanation(MESSAGES, COUNTS, [reward("default", [1.5, 0.2, -1, -0.5, 0.3])], source="games")


@pytest.fixture
def two(one):
    other = reward("combat", [-1.0, 0.1, -1, 0.0, 2.5], ensemble=True)
    typed = [reward("default", [0.7]), reward("combat", [0.1], ensemble=True)]
    return Explanation(MESSAGES, COUNTS, [*one.rewards, other], [HOSTILE], typed, "games", [0])


def rows_of(explanation, max_rows=None):
    data = explain.table_data(explanation, max_rows)
    return [list(row) for row in zip(*(column["values"] for column in data["columns"]), strict=True)]


def test_all_messages_are_there_the_best_liked_first(one):
    rows = rows_of(one)
    assert [row[0] for row in rows] == ["You see here a key.", "You kill the newt!", HOSTILE, MESSAGES[3], ""]
    assert rows[0][1:] == [10, 1.5, 4.5, 1.5, [0.0, 0.75, 1.5]]
    # The threshold is strict: a reward that equals it pays nothing.
    assert [row[4] for row in rows] == [1.5, 0.3, 0, 0, 0]
    said = "threshold 0.200: what stands below pays nothing"
    assert explain.table_data(one, None)["line"] == {"column": 2, "paid": 4, "text": said}


def test_hostile_text_stays_text(two, record):
    page = explain.render(two, "now")
    assert HOSTILE not in page
    compared("explain_page", {"page": page}, record)


def test_only_the_most_frequent_rows_are_shown_where_that_is_asked_for(one):
    assert sorted(row[0] for row in rows_of(one, 2)) == ["", "It's solid stone."]
    page = explain.render(one, "now", max_rows=2)
    assert "messages.csv has all" in page
    assert "You see here a key." not in page
    assert "messages.csv has all" not in explain.render(one, "now")


def test_messages_without_a_reward_are_left_out_of_every_figure():
    values = [1.5, np.nan, -1.0, np.nan, 0.3]
    some, full = reward("some", values, ensemble=True), reward("full", [1.0, 9.0, -2.0, -9.0, 0.5])
    one = Explanation(MESSAGES, COUNTS, [some])
    rows = rows_of(one)
    assert [row[0] for row in rows] == [MESSAGES[0], MESSAGES[4], MESSAGES[2], MESSAGES[1], MESSAGES[3]]
    assert rows[-1][1:] == [80, None, None, None, None, None]
    page = explain.render(one, "now")
    assert "2 messages have no reward" in page
    assert "nan" not in page.lower().replace("tonan", "")
    kept = [0, 2, 4]
    known = Explanation(
        [MESSAGES[i] for i in kept], COUNTS[kept], [reward("some", [values[i] for i in kept], ensemble=True)]
    )
    weights = COUNTS.astype(float)
    assert explain.histogram(some, weights, "x") == explain.histogram(known.rewards[0], weights[kept], "x")
    assert some.pays.tolist() == [True, False, False, False, True]
    assert explain.rank_correlation(some.normalised, full.normalised) == pytest.approx(1)
    assert explain.scatter(Explanation(MESSAGES, COUNTS, [some, full])).count("<title>") == 3
    none = reward("none", [np.nan] * 5)
    assert "there are no messages<" in explain.histogram(none, weights, "x")
    assert "no messages that both rate" in explain.scatter(Explanation(MESSAGES, COUNTS, [some, none]))


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_searches_and_sorts(two, tmp_path):
    (tmp_path / "explain.html").write_text(explain.render(two, "now"), encoding="utf-8")
    with browser.open_browser() as driver:
        driver.get(f"file://{tmp_path}/explain.html")
        assert driver.title == "What the reward likes"

        def texts():
            return [row[0] for row in browser.rows(driver, "messages")]

        def click(title):
            heads = driver.find_elements("css selector", "#messages th button")
            next(head for head in heads if head.text == title).click()

        key, newt, stone, nothing = MESSAGES[0], MESSAGES[4], MESSAGES[3], "(no message)"
        line = "── threshold 0.200: what stands below pays nothing ──"
        assert texts() == [key, newt, line, HOSTILE, stone, nothing]
        rows = browser.rows(driver, "messages")
        assert (rows[0][1:5], rows[3][4], rows[1][-1]) == (["10", "+1.500", "4.5", "1.500"], "—", "+2.200")
        for title, order in (
            ("normalised · default", [nothing, stone, HOSTILE, line, newt, key]),
            ("seen (times)", [nothing, stone, key, newt, HOSTILE]),
            ("seen (times)", [HOSTILE, newt, key, stone, nothing]),
            ("difference", [newt, stone, nothing, HOSTILE, key]),
            ("message", [nothing, HOSTILE, stone, newt, key]),
        ):
            click(title)
            assert texts() == order
        field = driver.find_element("css selector", "input[type=search]")
        field.send_keys("newt")
        assert texts() == [newt]
        assert driver.find_element("css selector", ".count").text == "1 of 5 messages"
        assert browser.errors(driver) == []
