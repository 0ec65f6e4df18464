"""How often Q orders dialogues as their returns do, and the table of ranking accuracies."""

from __future__ import annotations

import pytest

from motif_jax.ilql.evaluation import ranking_tables, recorded_texts


def rows_of(*returns_and_q: tuple[float, float]) -> list[dict[str, float]]:
    return [{"return": value, "q": q} for value, q in returns_and_q]


def test_neighbours_with_other_returns_are_compared_by_q() -> None:
    """Of the four pairs of neighbours one has equal returns; of the others Q orders the first and
    the last as they are.
    """
    rows = rows_of((1.0, 0.0), (2.0, 1.0), (2.0, 5.0), (0.0, 3.0), (1.0, 2.0))

    assert recorded_texts.ranking(rows) == {"accuracy": pytest.approx(2 / 3), "pairs": 3}


def test_equal_returns_alone_have_no_ranking() -> None:
    assert recorded_texts.ranking(rows_of((2.0, 1.0), (2.0, 5.0))) is None


def test_dialogues_without_values_have_no_ranking() -> None:
    assert recorded_texts.ranking([{"return": 1.0}, {"return": 2.0}]) is None


def test_a_token_without_an_accuracy_has_a_dash() -> None:
    accuracy = {"human_q_rank_acc_-1": 0.75, "human_q_target_rank_acc_-2": 0.5, "human_v": 1.0}

    header, rows = ranking_tables.accuracy_rows({"a": {"method": "ilql", "accuracy": accuracy}})

    assert header == ["agent", "data", "values", "token -1", "token -2"]
    assert rows == [
        ["a (ilql)", "human", "q", "0.750", "–"],
        ["a (ilql)", "human", "q target", "–", "0.500"],
    ]
