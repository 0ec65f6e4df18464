"""Names of evaluations on a page."""

from __future__ import annotations

import pytest

from motif_jax.reports import report

PLAN = {"policy": "runs/b", "checkpoint": 3}


@pytest.mark.parametrize(
    ("taken", "name"), [({"agent"}, "b"), ({"agent", "b"}, "b 2"), ({"agent", "b", "b 2"}, "b 3")]
)
def test_a_name_that_is_taken_gets_a_number(taken: set[str], name: str) -> None:
    assert report.evaluation_name(PLAN, taken) == name


def test_an_evaluation_of_an_untrained_agent_is_called_so() -> None:
    assert report.evaluation_name({**PLAN, "checkpoint": 0}, set()) == "before training"


def test_a_name_that_ends_with_a_number_keeps_it() -> None:
    names: list[str] = []
    for folder in ("a/seed1", "b/seed2", "c/seed2", "d/seed2", "e/3", "f/3"):
        names.append(report.evaluation_name({**PLAN, "policy": folder}, {"agent", *names}))

    assert names == ["seed1", "seed2", "seed2 (2)", "seed2 (3)", "3", "3 (2)"]
