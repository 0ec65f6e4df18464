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


@pytest.mark.parametrize(
    ("folder", "checkpoint", "expected"),
    [
        (None, None, (".", "300")),
        (None, "latest", (".", "latest")),
        (None, "0", (".", "0")),
        ("runs/other", None, ("runs/other", "latest")),
        ("runs/other", "200", ("runs/other", "200")),
        ("", None, ("", "latest")),
    ],
)
def test_the_checkpoint_is_the_evaluations_unless_another_is_named(
    folder: str | None, checkpoint: str | None, expected: tuple[str, str]
) -> None:
    config = load_config("replay", "", {"agent.dir": folder, "agent.checkpoint": checkpoint})

    assert replay.agent_of(config, {"policy": ".", "checkpoint": 300}) == expected


@pytest.mark.parametrize("folder", [None, ""])
def test_a_checkpoint_without_an_agent_is_refused(folder: str | None) -> None:
    config = load_config("replay", "", {"agent.dir": folder, "agent.checkpoint": "best"})

    with pytest.raises(UserError, match=r"^config\.agent\.checkpoint='best': must be None without an agent"):
        replay.agent_of(config, {"policy": "random", "checkpoint": None})


def rows_of_evaluation(monkeypatch: pytest.MonkeyPatch, rows: Rows) -> Callable[[ConfigDict], Rows]:
    """The rows that a config chooses from an evaluation of `rows`."""
    monkeypatch.setattr(evaluation_files, "read_evaluation", lambda folder: {"rows": rows})
    return replay.chosen_rows


def test_an_evaluation_of_texts_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = rows_of_evaluation(monkeypatch, [{"index": 0, "return": 1.0, "dialogue": {}}])

    with pytest.raises(UserError, match=r"config\.evaluation='runs/texts': must be an evaluation of games"):
        chosen(replay_config("0"))


def test_a_return_of_nan_is_neither_best_nor_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    returns = (None, 2.0, None, 1.0)
    rows: Rows = [{"index": index, "return": value, "actions": ""} for index, value in enumerate(returns)]
    chosen = rows_of_evaluation(monkeypatch, rows)

    assert [row["index"] for row in chosen(replay_config("best,worst,0"))] == [1, 3, 0]
    with pytest.raises(UserError, match=r"config\.episodes='best'"):
        rows_of_evaluation(monkeypatch, rows[:1])(replay_config("best"))
