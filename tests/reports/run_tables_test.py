from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.metric_files import Curve
from motif_jax.display import measures, page
from motif_jax.play import evaluation_tables
from motif_jax.reports import evaluation_sections, report
from motif_jax.reports.evaluation_sections import rows_of
from motif_jax.reports.run_data import RunData
from tests.made_up_runs import run_markdown, run_page
from tests.reports.headline_test import evaluation


def of_apples(shift: float):
    """An evaluation whose rows have a number of the task's own, and some that are no measures."""
    rows = [
        {
            "index": index,
            "seed": index,
            "kind": 2.0,
            "session": 0,
            "end_reason": "end",
            "return": float(index),
            "apples_eaten": index % 3 + shift,
        }
        for index in range(12)
    ]
    return evaluation(rows)


@pytest.fixture
def apples() -> RunData:
    curve = Curve(np.arange(9.0), np.arange(9.0))
    return RunData(
        "t",
        evaluations={"agent": of_apples(1.0), "random": of_apples(0.0)},
        episodes={"env": curve, "apples_eaten": curve, "return": curve},
    )


def test_numbers_that_only_the_task_knows_stand_behind_the_others(apples: RunData) -> None:
    assert [row.measure.key for row in rows_of(apples)] == ["return", "apples_eaten"]
    for text in (run_markdown(apples), run_page(apples)):
        assert "apples eaten" in text


def test_numbers_that_only_the_task_knows_are_compared(apples: RunData) -> None:
    differences = report.as_json(apples)["differences"]

    [difference] = [row for row in differences if row["measure"] == "apples_eaten"]
    assert difference["value"] == 1


def test_numbers_that_only_the_task_knows_have_charts(apples: RunData) -> None:
    assert list(page.plots(report.sections(apples))) == [
        "evaluation_return", "evaluation_apples_eaten", "training_return", "training_apples_eaten",
    ]  # fmt: skip


@pytest.fixture
def summarised():
    rows = [
        {
            "index": index,
            "length": 10 + index,
            "return": 2.0 * index,
            "session": 0,
            "session_seconds": 0.5,
        }
        for index in range(3)
    ]
    return evaluation_tables.summarise({"policy": "a|b", "environment": "e"}, rows)


def test_an_evaluation_is_summarised_by_its_measures(summarised) -> None:
    summary, _ = summarised

    returns = summary["measures"]["return"]
    assert returns["mean"]["value"] == 2
    assert returns["median"]["value"] == 2
    assert summary["measures"]["length"]["mean"]["value"] == 11


def test_the_table_of_an_evaluation_is_written_and_printed(summarised, tmp_path, capsys) -> None:
    evaluation_tables.show(tmp_path, *summarised, "tokens", "; a note")

    table = (tmp_path / "table.md").read_text()
    # Of three games the resamples reach from three times the least to three times the greatest.
    assert "| return (reward) | 2 [0, 4] | 2 [0, 4] | 2 [0, 4] | 0 to 4 |" in table
    assert "| length (steps) | 11 [10, 12] |" in table
    assert "3 episodes, 33 tokens, 66 tokens/s; brackets: 95 % intervals" in table
    assert table.rstrip().endswith("; a note")
    assert "return (reward)" in capsys.readouterr().out


def test_the_result_is_printed_for_a_terminal() -> None:
    rows = [
        {"index": index, "seed": index, "return": float(index), "gold": 5.0, "length": 3.0}
        for index in range(12)
    ]
    data = RunData("t", evaluations={"agent": evaluation(rows), "random": evaluation(rows)})

    header, cells = evaluation_sections.comparison(data)

    assert header == ["measure (unit)", "agent", "random", "agent minus random"]
    assert [row[0] for row in cells] == ["return (reward)", "length (steps)"]
    assert cells[0][-1] == "0 [0, 0]"


def test_a_run_without_evaluations_has_no_result_to_print() -> None:
    _, cells = evaluation_sections.comparison(RunData("nothing"))

    assert cells == []


def test_what_happened_in_no_game_has_an_interval() -> None:
    rows = [
        {"index": index, "seed": index, "return": float(index), "kills": 0.0, "xlvl": 1.0}
        for index in range(100)
    ]

    summaries = measures.summarise_rows(rows, 50, 0.95)

    assert summaries["kills"].mean.high == pytest.approx(0.037, abs=1e-3)
    assert summaries["xlvl"].mean.high == 1, "a level that is always 1 is no rate"
