"""Which episodes of an evaluation are replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ml_collections import ConfigDict

from motif_jax.core.errors import UserError
from motif_jax.play import evaluation_files, replay
from tests.reward_fixtures import load_config

Rows = list[dict[str, Any]]


def replay_config(episodes: str) -> ConfigDict:
    return load_config("replay", "", {"evaluation": "runs/texts", "episodes": episodes})


def rows_of_evaluation(monkeypatch: pytest.MonkeyPatch, rows: Rows) -> Callable[[ConfigDict], Rows]:
    """The rows that a config chooses from an evaluation of `rows`."""
    monkeypatch.setattr(evaluation_files, "read_evaluation", lambda folder: {"rows": rows})
    return replay._chosen_rows


def test_an_evaluation_of_texts_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = rows_of_evaluation(monkeypatch, [{"index": 0, "return": 1.0, "dialogue": {}}])

    with pytest.raises(UserError, match=r"config\.evaluation='runs/texts': must be an evaluation of games"):
        chosen(replay_config("0"))


def test_a_return_that_is_no_number_is_neither_best_nor_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    returns = (None, 2.0, None, 1.0)
    rows: Rows = [{"index": index, "return": value, "actions": ""} for index, value in enumerate(returns)]
    chosen = rows_of_evaluation(monkeypatch, rows)

    assert [row["index"] for row in chosen(replay_config("best,worst,0"))] == [1, 3, 0]
    with pytest.raises(UserError, match=r"config\.episodes='best'"):
        rows_of_evaluation(monkeypatch, rows[:1])(replay_config("best"))
