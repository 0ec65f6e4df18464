"""Claims of a comparison: what is counted, which the games carry, and the page in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

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


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of agents that play the same games: 'combat' kills two more in each, 'gold' gathers ten more in half of them."""
    folder = tmp_path_factory.mktemp("claims")
    # What a game has to kill: it differs more than the agents do.
    hard = np.random.default_rng(0).poisson(20, GAMES)
    for name in ("combat", "gold"):
        rows = evaluation_rows(GAMES, 0.0, 1)
        for place, row in enumerate(rows):
            kills = int(hard[place]) + 2 * (name == "combat")
            row["kills"], row["deaths"] = float(kills), float(place % 4 > 0)
            row["gold"] = 10.0 * (name == "gold" and place % 2 == 0)
            met = [
                MessageTally("You kill the newt!", kills),
                MessageTally("You miss the newt.  The newt bites!", 3),
                MessageTally("The kitten bites the newt.", 5),
                MessageTally("$ - 4 gold pieces.", 2),
                MessageTally("$ - 50 gold pieces.", int(place == 7)),  # the largest heap outside vaults
                MessageTally("$ - 480 gold pieces (488 in total).", int(place == 7)),  # he fell into a vault
                MessageTally("The kitten drops a gold piece.  $ - a gold piece.", int(name == "gold")),
                MessageTally("The kitten drops a gold piece.", 7),
            ]
            row["messages"] = messages.pack([*met, MessageTally("", 50)])
        write_evaluation(folder / name, name, rows)
    return folder


@pytest.fixture(autouse=True)
def no_charts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("browser") is None:
        monkeypatch.setattr("motif_jax.display.charts.figure", lambda plot: plot.title)


def configured(folder: Path, **changes: object) -> ConfigDict:
    values = {
        "methods": f"combat={folder / 'combat'}; gold={folder / 'gold'}", "claims": "combat > gold: kills; gold > combat: gold",
        "measures": "fights,finds,gathered,deaths", "resamples": 300, "plots": False,
    }  # fmt: skip
    return load_config("compare", "", {**values, **changes})


@pytest.mark.slow
def test_claims_are_carried_by_differences_game_by_game(evaluations: Path, tmp_path: Path) -> None:
    run_config(configured(evaluations), tmp_path)
    found = json.loads((tmp_path / "comparison.json").read_text())
    kills, gold = (claim["difference"] for claim in found["claims"])
    # All games differ by exactly two: the games' own differences cancel.
    assert (kills["value"], kills["low"], kills["high"], kills["pairs"]) == (2, 2, 2, GAMES)
    assert gold["value"] == pytest.approx(5)
    assert 0 < gold["low"] < 5 < gold["high"]
    means = found["means"]
    assert means["deaths"]["combat"]["value"] == 0.75
    # Kills and misses are blows; what the kitten does is none.
    assert means["fights"]["gold"]["value"] == pytest.approx(means["kills"]["gold"]["value"] + 3)
    # Only what the hero picks up, however much it is; what is gathered is without the vault.
    vault = 1 / GAMES
    for measure, combat, gold in (("finds", 2 + 2 * vault, 3 + 2 * vault), ("gathered", 8.625, 9.625)):
        found = {name: of["value"] for name, of in means[measure].items()}
        assert found == {"combat": combat, "gold": gold}


def test_a_claim_that_the_games_do_not_carry_is_shown_and_fails(evaluations, tmp_path, capsys) -> None:
    # Kills differ by 2 in each game.
    claims = "combat > gold + 1.5: kills; combat > gold + 2: kills; combat > gold: deaths"
    config = configured(evaluations, claims=claims)
    assert compare.run(config, tmp_path) == 1
    missed = "combat > gold + 2: kills; combat > gold: deaths"
    assert capsys.readouterr().err == f"not supported by these games: {missed}\n"


def test_bad_values_are_told(evaluations, tmp_path) -> None:
    for claim, told in (
        ("combat > silver: kills", "combat > silver: kills: must be 'A > B: measure"),
        ("combat > gold: glory", "glory: must be one of return, intrinsic_return"),
    ):
        with pytest.raises(UserError, match=rf"^config.claims={told}"):
            compare.check(configured(evaluations, claims=claim), tmp_path)


def test_what_different_rewards_pay_is_not_compared(evaluations, tmp_path) -> None:
    for name in ("one", "two"):
        write_evaluation(tmp_path / name, name, evaluation_rows(4, 0.0, 1), {"dir": f"runs/{name}"})
    given = {"methods": f"a={tmp_path / 'one'}; b={tmp_path / 'two'}"}
    compare.check(configured(evaluations, **given, measures="return", claims=""), tmp_path / "out")
    told = r"=intrinsic_return: a and b were rated by different rewards \(dir runs/one and runs/two\): evaluate both"
    for key, changes in (
        ("measures", {"measures": "intrinsic_return", "claims": ""}),
        ("claims", {"measures": "return", "claims": "a > b: intrinsic_return"}),
    ):
        with pytest.raises(UserError, match=rf"config\.{key}{told}"):
            compare.check(configured(evaluations, **given, **changes), tmp_path / "out")


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
