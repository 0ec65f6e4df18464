"""Which episodes of an evaluation are shown again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from motif_jax.core.errors import UserError
from motif_jax.play import evaluation_files, visualize
from motif_jax.play.config import CommentingAgent, RecordedEpisodes

Rows = list[dict[str, Any]]


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
    chosen = RecordedEpisodes(agent=CommentingAgent(dir=folder, checkpoint=checkpoint))

    assert visualize.agent_of(chosen, {"policy": ".", "checkpoint": 300}) == expected


def rows_of_evaluation(monkeypatch: pytest.MonkeyPatch, rows: Rows) -> Callable[[str], Rows]:
    """The rows of the named episodes, from an evaluation of `rows`."""
    monkeypatch.setattr(evaluation_files, "read_evaluation", lambda folder: {"rows": rows})
    return functools.partial(visualize.chosen_rows, "runs/texts")


def test_an_evaluation_of_texts_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = rows_of_evaluation(monkeypatch, [{"index": 0, "return": 1.0, "dialogue": {}}])

    with pytest.raises(
        UserError,
        match=r"config\.recorded\.evaluation='runs/texts': must be an evaluation of games",
    ):
        chosen("0")


def test_a_return_of_nan_is_neither_best_nor_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    returns = (None, 2.0, None, 1.0)
    rows: Rows = [
        {"index": index, "return": value, "actions": ""} for index, value in enumerate(returns)
    ]
    chosen = rows_of_evaluation(monkeypatch, rows)

    assert [row["index"] for row in chosen("best,worst,0")] == [1, 3, 0]
    with pytest.raises(UserError, match=r"config\.recorded\.episodes='best'"):
        rows_of_evaluation(monkeypatch, rows[:1])("best")
