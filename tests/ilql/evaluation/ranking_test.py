"""How often Q orders dialogues as their returns do."""

from __future__ import annotations

import pytest

from motif_jax.ilql.evaluation import recorded_texts


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
