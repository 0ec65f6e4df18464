"""The table, the summary and the names with which explain_reward tells what rewards like."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from motif_jax.motif import explain_reward
from motif_jax.motif.explanation import ExplainedReward, Explanation

NAN = float("nan")
TEXTS = ["=x", "b,c", "d"]
COUNTS = np.array([3, 1, 2])


def reward_of_texts(**changes: Any) -> ExplainedReward:
    """A reward of the three texts, which rates the first two, with one evaluation before."""
    values: dict[str, Any] = {
        "name": "a",
        "raw": np.array([0.5, 2, 1 / 3], np.float32),
        "normalised": np.array([-1, 1.5, NAN]),
        "paid": np.array([0, 1.5, NAN]),
        "threshold": 1.0,
        "disagreement": None,
        "history": np.array([[0.25, 0, NAN]]),
        "evaluations": [0],
        "curve": [],
    }
    return ExplainedReward(**{**values, **changes})


def test_a_table_begins_with_the_greatest_reward() -> None:
    """Text that a spreadsheet would take for a formula has an apostrophe before it."""
    lines = explain_reward.messages_table(TEXTS, COUNTS, [reward_of_texts()]).splitlines()

    assert lines == [
        "message,count,raw,normalised,paid,normalised_at_0",
        '"b,c",1,2,1.5,1.5,0',
        "'=x,3,0.5,-1,0,0.25",
        "d,2,0.3333333,,,",
    ]


def test_columns_of_two_rewards_have_letters() -> None:
    ensemble = reward_of_texts(
        disagreement=np.array([1, 2, 3.0]), evaluations=[], history=np.zeros((0, 3))
    )

    header = explain_reward.messages_table(
        TEXTS, COUNTS, [reward_of_texts(), ensemble]
    ).splitlines()[0]

    assert header.split(",") == [
        "message",
        "count",
        "A_raw",
        "A_normalised",
        "A_paid",
        "A_normalised_at_0",
        "B_raw",
        "B_normalised",
        "B_paid",
        "B_disagreement",
    ]


def reward_of_messages(name: str, normalised: list[float]) -> ExplainedReward:
    return reward_of_texts(
        name=name,
        normalised=np.array(normalised),
        paid=np.array([0, 0, 2.0, 0]),
        threshold=1.5,
        history=np.zeros((0, 4)),
        evaluations=[],
    )


@pytest.fixture
def explanation() -> Explanation:
    """Two rewards of four messages, and of two texts of the user; the first knows no second message
    and no second text.
    """
    rewards = [
        reward_of_messages("a", [0.5, NAN, 2.0, -1.0]),
        reward_of_messages("b", [4.0, 1.0, 3.0, 2.0]),
    ]
    return Explanation(
        messages=list("wxyz"),
        counts=np.array([5, 1, 2, 9]),
        rewards=rewards,
        texts=["t", "u"],
        typed=rewards,
        text_counts=np.array([0, 7]),
    )


def test_a_summary_counts_messages_and_steps(explanation: Explanation) -> None:
    summary = explain_reward.summary_of(explanation)

    assert summary["messages"] == 4
    assert summary["steps"] == 17
    assert [reward["unrated_messages"] for reward in summary["rewards"]] == [1, 0]


def test_a_summary_names_favourite_messages_first(explanation: Explanation) -> None:
    first, second = explain_reward.summary_of(explanation)["rewards"]

    assert first["most_liked"] == ["y", "w", "z"]
    assert first["least_liked"] == ["z", "w", "y"]
    assert second["most_liked"] == ["w", "y", "z", "x"]
    assert second["least_liked"] == ["x", "z", "y", "w"]


def test_two_rewards_are_correlated_by_ranks_of_common_messages(explanation: Explanation) -> None:
    """Of w, y and z the first reward likes y best, then w; the second w, then y; both like z
    least.
    """
    assert explain_reward.summary_of(explanation)["rank_correlation"] == pytest.approx(0.5)


def test_texts_are_counted_by_the_messages_of_the_dataset() -> None:
    rows = np.array([[1, 2], [3, 4], [5, 6]], np.uint8)

    counts = explain_reward.counts_of_texts(rows, messages=rows[::2], counts=np.array([7, 8]))

    assert counts.tolist() == [7, 0, 8]


class Folder(NamedTuple):
    """A reward as far as its name depends on it."""

    folder: Path


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["runs/a", "x/b.safetensors"], ["a", "b"]),
        (["x/b.safetensors", "y/b.safetensors"], ["b (A)", "b (B)"]),
        (["y/b.safetensors", "z/b"], ["b (A)", "b (B)"]),
    ],
)
def test_rewards_of_equal_names_are_told_apart_by_letters(
    folders: list[str], names: list[str]
) -> None:
    assert explain_reward.names_of([Folder(Path(folder)) for folder in folders]) == names
