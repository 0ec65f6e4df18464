"""The page of a reward: what it shows, and that a game's text cannot break it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from motif_jax.motif import explanation_page
from motif_jax.motif.explanation import Composition, ExplainedReward, Explanation, rank_correlation
from tests import browser

HOSTILE = "</script><script>document.title='broken'</script><b>\"'&"
MESSAGES = ["You see here a key.", HOSTILE, "", "It's solid stone.", "You kill the newt!"]
COUNTS = np.array([10, 1, 500, 80, 3])


def reward(name, values, threshold=0.2, ensemble=False):
    """A reward of three evaluations whose messages have `values`; NaN is unrated."""
    values = np.array(values, float)
    history = np.stack([values * 0, values / 2, values])
    quantiles = {f"reward/quantile_{level:02d}": level / 50 - 1 for level in range(5, 100, 5)}
    curve = [
        {
            "epoch": epoch,
            "train/loss": 0.6,
            "validation/loss": 0.7 - 0.1 * epoch,
            "validation/accuracy": 0.5 + 0.2 * epoch,
            **quantiles,
        }
        for epoch in range(3)
    ]
    curve[-1]["calibration"] = [{"confidence": 0.6, "accuracy": 0.5, "pairs": 3}]
    curve[-1]["validation/calibration_error"] = 0.1
    disagreement = np.abs(values) / 10 if ensemble else None
    paid = values if threshold is None else np.where(values <= threshold, 0.0, values)
    return ExplainedReward(
        name, values * 3, values, paid, threshold, disagreement, history, [0, 1, 2], curve
    )


@pytest.fixture
def two():
    one = reward("default", [1.5, 0.2, -1, -0.5, 0.3])
    other = reward("combat", [-1.0, 0.1, -1, 0.0, 2.5], ensemble=True)
    typed = [reward("default", [0.7]), reward("combat", [0.1], ensemble=True)]
    return Explanation(MESSAGES, COUNTS, [one, other], [HOSTILE], typed, "games", [0])


def test_hostile_text_stays_text(two):
    page = explanation_page.render(two, "now", 9)

    assert HOSTILE not in page
    assert page.count("</script>") == page.count("<script")


def test_the_page_shows_messages_paid_despite_a_sentence():
    some = reward("some", [1.5, 0.2, -1, -0.5, 0.3])
    composition = Composition("You faint.  You wake.", 4, 1.25, "You faint.", -0.75)
    explanation = Explanation(MESSAGES, COUNTS, [some], source="s", compositions=[[composition]])

    page = explanation_page.render(explanation, "now", 5)

    assert "Paid in spite of a sentence" in page
    assert "You faint.  You wake." in page
    assert "-0.750" in page


HALF_RATED = [np.nan, 1.0, np.nan, -0.75, 0.125]


def test_messages_without_a_reward_are_shown_unrated():
    some = reward("some", HALF_RATED, threshold=None, ensemble=True)

    page = explanation_page.render(Explanation(MESSAGES, COUNTS, [some], source="s"), "now", 5)

    assert "2 messages have no reward (–)" in page
    assert "not rated" in page
    # Of 84 steps with a rated message; 500 and 10 others have none.
    assert "100.0 % of the dataset&#x27;s steps with a rated message" in page


def test_charts_leave_out_messages_without_a_reward():
    some = reward("some", HALF_RATED, threshold=None)
    none = reward("none", [np.nan] * 5, threshold=None)
    default = reward("default", [1.5, 0.2, -1, -0.5, 0.3])

    assert "nan" not in explanation_page.scatter(Explanation(MESSAGES, COUNTS, [some, default]))
    assert "no messages that both rate" in explanation_page.scatter(
        Explanation(MESSAGES, COUNTS, [some, none])
    )
    assert "there are no messages" in explanation_page.histogram(none, COUNTS.astype(float), "x")


def test_a_reward_of_one_evaluation_has_no_curves(two):
    single = reward("plain", [2.0] * 5)._replace(
        curve=[{"epoch": 0}], history=np.full((1, 5), 2.0), evaluations=[0]
    )

    page = explanation_page.render(two._replace(rewards=[two.rewards[0], single]), "now", 9)

    assert page.count("only one evaluation") == 1


@pytest.mark.slow
def test_a_text_says_how_often_it_was_seen(two):
    typed = [reward("default", [0.5, -0.5]), reward("combat", [0.25, 0.1])]

    page = explanation_page.render(
        two._replace(texts=["typed", "new"], text_counts=[1500, 0], typed=typed), "now", 9
    )

    assert "1,500 times in the dataset" in page
    assert "never in the dataset: a guess" in page


@pytest.mark.slow
def test_only_the_most_frequent_messages_are_in_the_table(two):
    page = explanation_page.render(two, "now", 2)

    assert "The 2 most frequent of 5 messages; messages.csv has all." in page
    assert "newt" not in page.partition('id="messages"')[2]


def test_ranks_are_compared_of_the_texts_that_both_rate():
    other = np.array([9, 1, 9, 0, 0.5])

    assert rank_correlation(np.array(HALF_RATED), other) == pytest.approx(1)


def test_a_bar_round_the_threshold_is_paid_in_part():
    # In 60 bars from 0 to 6, 3.001 and 3.003 share one; the threshold lies between them, and is
    # itself unpaid.
    values = [0.0, 3.001, 3.002, 3.003, 6.0]
    counts = np.array([10.0, 30.0, 40.0, 15.0, 5.0])

    drawn = explanation_page.histogram(reward("r", values, threshold=3.002), counts, "steps")

    titles = re.findall(r"<title>\S+ to \S+: (\S+) % (\w+)</title>", drawn)
    assert sum(float(share) for share, kind in titles if kind == "paid") == 20.0
    assert sum(float(share) for share, kind in titles if kind == "unpaid") == 80.0


def test_without_a_threshold_every_bar_is_paid():
    drawn = explanation_page.histogram(reward("r", [0.0, -1.0], threshold=None), np.ones(2), "once")
    assert "unpaid" not in drawn


@pytest.mark.browser
def test_the_page_searches_and_sorts(two, tmp_path):
    (tmp_path / "explain.html").write_text(explanation_page.render(two, "now", 9), encoding="utf-8")
    with browser.open_browser() as driver:
        driver.get(f"file://{tmp_path}/explain.html")
        assert driver.title == "What the reward likes"

        def texts():
            return [row[0] for row in browser.rows(driver, "messages")]

        def click(title):
            heads = driver.find_elements("css selector", "#messages th button")
            next(head for head in heads if head.text == title).click()

        key = MESSAGES[0]
        newt = MESSAGES[4]
        stone = MESSAGES[3]
        nothing = "(no message)"
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
