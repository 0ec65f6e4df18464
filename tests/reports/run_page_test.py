from __future__ import annotations

import json

import pytest

from motif_jax.display.measures import format_value
from tests import browser
from tests.made_up_runs import run_data, run_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    data = run_data(folder / "runs")
    (folder / "report.html").write_text(run_page(data), encoding="utf-8")
    with browser.open_browser() as driver:
        driver.get(f"file://{folder}/report.html")
        yield driver, data, folder


def test_best_and_worst_recorded_games_of_the_training(opened):
    driver, data, folder = opened
    shown = browser.rows(driver, "training-games-table")
    lines = map(
        json.loads, (folder / "runs" / "agent" / "episodes.jsonl").read_text().splitlines()[:-1]
    )
    values = sorted(
        (row["intrinsic_return"] for row in lines if row["seed"] % 20 == 0), reverse=True
    )
    assert len(data.recorded) == len(values) == 20
    assert [row[1] for row in shown] == [
        format_value(value) for value in (*values[:3], *values[-3:])
    ]
    assert shown[0][-1] == "watch"
    assert (
        shown[-1][-1]
        == f"{min(data.recorded, key=lambda row: row['intrinsic_return'])['stem']}.json"
    )
    assert "20 games were recorded" in driver.find_element("id", "training-games").text


def test_sort_search_and_show_all(opened):
    driver, data, _ = opened
    best = max(data.liked, key=lambda m: m.normalised)
    assert browser.rows(driver, "liked-most")[0][1] == best.text
    driver.execute_script("document.querySelector('#messages details').open = true")
    assert len(browser.rows(driver, "liked-all")) == 50
    field = driver.find_element("css selector", "input[data-for=liked-all]")
    field.send_keys("newt 11")
    matches = browser.rows(driver, "liked-all")
    assert matches
    assert {row[1] for row in matches} == {
        m.text for m in data.liked if "newt" in m.text and "11" in m.text
    }
    driver.execute_script(
        "arguments[0].value = ''; arguments[0].dispatchEvent(new Event('input'))", field
    )
    head = driver.find_elements("css selector", "#liked-all th button")[4]
    for falls in (True, False):
        driver.execute_script("arguments[0].click()", head)
        counts = [int(row[4].replace(",", "")) for row in browser.rows(driver, "liked-all")]
        assert counts == sorted(counts, reverse=falls)
    driver.execute_script("document.querySelector('#messages .more').click()")
    assert len(browser.rows(driver, "liked-all")) == len(data.liked)


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (420, True)])
def test_nothing_sticks_out_and_contrast_is_enough(opened, width, dark):
    driver, _, folder = opened
    browser.check_look(
        driver, folder / f"page-{width}-{'dark' if dark else 'light'}.png", width, dark
    )
