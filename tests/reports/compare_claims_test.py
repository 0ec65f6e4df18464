"""Claims of a comparison: what is counted, which the games carry, and the page in a real
browser.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.core.errors import UserError
from motif_jax.play import messages
from motif_jax.play.messages import MessageTally
from motif_jax.reports import compare
from tests import browser
from tests.made_up_runs import evaluation_rows, write_evaluation
from tests.reward_fixtures import load_config, run_config

GAMES = 80


def messages_of(name: str, kills: int, has_large_heaps: bool) -> list[MessageTally]:
    """The messages of a game; the kitten's deeds are none of the hero's."""
    tallies = [
        MessageTally("You kill the newt!", kills),
        MessageTally("You miss the newt.  The newt bites!", 3),
        MessageTally("The kitten bites the newt.", 5),
        MessageTally("$ - 4 gold pieces.", 2),
        MessageTally("The kitten drops a gold piece.", 7),
        MessageTally("", 50),
    ]
    if has_large_heaps:
        # The largest heap outside vaults, and one of a vault.
        tallies.append(MessageTally("$ - 50 gold pieces.", 1))
        tallies.append(MessageTally("$ - 480 gold pieces (488 in total).", 1))
    if name == "gold":
        tallies.append(MessageTally("The kitten drops a gold piece.  $ - a gold piece.", 1))
    return tallies


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluations of the same games: 'combat' kills two more in each, 'gold' gathers ten more in
    half of them.
    """
    folder = tmp_path_factory.mktemp("claims")
    # What a game has to kill: it differs more than the agents do.
    newts = np.random.default_rng(0).poisson(20, GAMES)
    for name in ("combat", "gold"):
        rows = evaluation_rows(GAMES, 0.0, 1)
        for game, row in enumerate(rows):
            kills = int(newts[game]) + (2 if name == "combat" else 0)
            row["kills"] = float(kills)
            row["deaths"] = float(game % 4 > 0)
            row["gold"] = 10.0 if name == "gold" and game % 2 == 0 else 0.0
            row["messages"] = messages.pack(messages_of(name, kills, has_large_heaps=game == 7))
        write_evaluation(folder / name, name, rows)
    return folder


@pytest.fixture(autouse=True)
def no_charts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("browser") is None:
        monkeypatch.setattr("motif_jax.display.charts.figure", lambda plot: plot.title)


def configured(folder: Path, **changes: object) -> ConfigDict:
    values = {
        "methods": f"combat={folder / 'combat'}; gold={folder / 'gold'}",
        "claims": "combat > gold: kills; gold > combat: gold",
        "measures": "fights,finds,gathered,deaths",
        "resamples": 300,
        "plots": False,
    }
    return load_config("compare", "", {**values, **changes})


@pytest.fixture
def numbers(evaluations: Path, tmp_path: Path) -> dict[str, Any]:
    """comparison.json of both evaluations."""
    run_config(configured(evaluations), tmp_path)
    contents: dict[str, Any] = json.loads((tmp_path / "comparison.json").read_text())
    return contents


@pytest.mark.slow
def test_differences_of_equal_games_have_no_spread(numbers: dict[str, Any]) -> None:
    kills = numbers["claims"][0]["difference"]

    # All games differ by exactly two: the games' own differences cancel.
    assert (kills["value"], kills["low"], kills["high"], kills["pairs"]) == (2, 2, 2, GAMES)


@pytest.mark.slow
def test_differences_of_some_games_have_an_interval(numbers: dict[str, Any]) -> None:
    gold = numbers["claims"][1]["difference"]

    assert gold["value"] == pytest.approx(5)
    assert 0 < gold["low"] < 5 < gold["high"]


@pytest.mark.slow
def test_fights_are_the_heros_kills_hits_and_misses(numbers: dict[str, Any]) -> None:
    means = numbers["means"]

    assert means["deaths"]["combat"]["value"] == 0.75
    assert means["fights"]["gold"]["value"] == pytest.approx(means["kills"]["gold"]["value"] + 3)


@pytest.mark.slow
def test_finds_count_heaps_and_gathered_their_gold_without_vaults(numbers: dict[str, Any]) -> None:
    finds = numbers["means"]["finds"]
    gathered = numbers["means"]["gathered"]

    # Two heaps in a game, and both large ones in one of them.
    assert finds["combat"]["value"] == 2 + 2 / GAMES
    assert finds["gold"]["value"] == 3 + 2 / GAMES
    assert gathered["combat"]["value"] == 8 + 50 / GAMES
    assert gathered["gold"]["value"] == 9 + 50 / GAMES


def test_a_claim_that_the_games_do_not_carry_fails(evaluations, tmp_path, capsys) -> None:
    # Kills differ by 2 in each game.
    claims = "combat > gold + 1.5: kills; combat > gold + 2: kills; combat > gold: deaths"

    code = compare.run(configured(evaluations, claims=claims), tmp_path)

    assert code == 1
    failed = "combat > gold + 2: kills; combat > gold: deaths"
    assert capsys.readouterr().err == f"not supported by these games: {failed}\n"


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ("combat > silver: kills", "combat > silver: kills: must be 'A > B: measure"),
        ("combat > gold: glory", "glory: must be one of return, intrinsic_return"),
        ("combat > combat + 1: kills", "combat > combat \\+ 1: kills: compares combat with itself"),
    ],
)
def test_a_claim_without_two_methods_or_a_measure_is_refused(
    evaluations, tmp_path, claim: str, message: str
) -> None:
    with pytest.raises(UserError, match=rf"^config.claims={message}"):
        compare.check(configured(evaluations, claims=claim), tmp_path)


@pytest.fixture
def two_rewards(tmp_path: Path) -> str:
    """The methods of two evaluations that different rewards rated."""
    for name in ("one", "two"):
        write_evaluation(tmp_path / name, name, evaluation_rows(4, 0.0, 1), {"dir": f"runs/{name}"})
    return f"a={tmp_path / 'one'}; b={tmp_path / 'two'}"


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("measures", {"measures": "intrinsic_return", "claims": ""}),
        ("claims", {"measures": "return", "claims": "a > b: intrinsic_return"}),
    ],
)
def test_what_different_rewards_pay_is_not_compared(
    evaluations, tmp_path, two_rewards: str, key: str, changes: dict[str, str]
) -> None:
    config = configured(evaluations, methods=two_rewards, **changes)

    message = r"=intrinsic_return: a and b were rated by different rewards \(dir runs/one and runs/two\): evaluate both"
    with pytest.raises(UserError, match=rf"config\.{key}{message}"):
        compare.check(config, tmp_path / "out")


def test_what_different_rewards_do_not_pay_is_compared(
    evaluations, tmp_path, two_rewards: str
) -> None:
    config = configured(evaluations, methods=two_rewards, measures="return", claims="")

    compare.check(config, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_shows_agents_side_by_side(evaluations, tmp_path) -> None:
    browser.require_browser()
    compare.run(configured(evaluations), tmp_path)
    with browser.open_browser() as driver:
        driver.get(f"file://{tmp_path}/comparison.html")
        means = {row[0].split("\n")[0]: row[1:] for row in browser.rows(driver, "means")}
        assert means["gold (pieces)"][0].startswith("0\n")
        assert means["gold (pieces)"][1].startswith("5\n")
        assert len(driver.find_elements("css selector", ".verdict.good")) == 2
        for width, dark in ((420, False), (1400, True)):
            browser.check_look(driver, tmp_path / f"claims-{width}.png", width, dark)
