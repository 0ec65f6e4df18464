"""The best and the worst games, of an evaluation and of a training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from motif_jax.display.page import Section
from motif_jax.reports import recorded_games
from motif_jax.reports.run_data import RunData
from tests.reports.headline_test import evaluation as evaluation_of


def rows(**numbers: list[Any]) -> list[dict[str, Any]]:
    """Rows of episodes, with a column of each of `numbers`; None is a number that was infinite."""
    columns = {"return": [3.0, 2.0, 1.0], **numbers}
    games = []
    for index in range(3):
        row = {key: values[index] for key, values in columns.items()}
        games.append({"index": index, "seed": index, "step": index, "end_reason": "end", **row})
    return games


def evaluated(games: list[dict[str, Any]], **plan: Any) -> Section:
    evaluation = evaluation_of(games)
    evaluation["plan"] |= plan
    section = recorded_games.episodes_section(RunData("t", evaluations={"agent": evaluation}))
    assert section is not None
    return section


def cells(section: Section, column: str) -> list[str]:
    (table,) = section.parts
    place = list(table.header).index(column)
    return [row[place] for row in table.texts()]


@pytest.mark.parametrize("of_training", [False, True])
def test_an_infinite_number_of_a_game_is_not_available(of_training: bool) -> None:
    games = rows(score=[7.0, None, 5.0])
    section: Section | None = evaluated(games)
    if of_training:
        recorded = [{**row, "stem": "step"} for row in games]
        section = recorded_games.section(RunData("t", recorded=recorded))

    assert section is not None
    assert cells(section, "game score (points)") == ["7", "n/a", "5"]


def test_a_number_that_the_best_game_lacks_is_shown() -> None:
    games = rows(score=[7.0, 6.0, 5.0])
    del games[0]["score"]

    assert cells(evaluated(games), "game score (points)") == ["n/a", "6", "5"]


@pytest.mark.parametrize(("plan", "is_replayed"), [({}, True), ({"decode": None}, False)])
def test_games_of_text_are_not_said_to_replay(plan: dict[str, Any], is_replayed: bool) -> None:
    section = evaluated(rows(success=list(np.ones(3))), **plan)

    assert ("can be replayed" in section.note) == is_replayed
