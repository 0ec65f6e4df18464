from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.metric_files import Curve
from motif_jax.display import measures, page
from motif_jax.play import evaluation_tables
from motif_jax.reports import evaluation_sections, run_report
from motif_jax.reports.evaluation_sections import rows_of
from motif_jax.reports.run_data import RunData
from tests.made_up_runs import run_page, run_texts
from tests.reports.glance_test import evaluation


def test_numbers_that_only_the_task_knows_are_shown_behind_the_others():
    def played(shift):
        same = {"kind": 2.0, "session": 0, "end_reason": "end"}
        numbers = [{"return": float(i), "apples_eaten": i % 3 + shift} for i in range(12)]
        return evaluation([{"index": i, "seed": i, **same, **row} for i, row in enumerate(numbers)])

    data = RunData("t")
    data.evaluations = {"agent": played(1.0), "random": played(0.0)}
    data.episodes = {key: Curve(np.arange(9.0), np.arange(9.0)) for key in ("env", "apples_eaten", "return")}
    assert [row.measure.key for row in rows_of(data)] == ["return", "apples_eaten"]
    [found] = [d for d in run_report.as_json(data)["differences"] if d["measure"] == "apples_eaten"]
    assert found["value"] == 1
    for text in (*run_texts(data).values(), run_page(data)):
        assert "apples eaten" in text
    assert list(page.plots(run_report.sections(data))) == [
        "evaluation_return", "evaluation_apples_eaten", "training_return", "training_apples_eaten",
    ]  # fmt: skip


def test_an_evaluation_is_summarised_and_its_table_written(tmp_path, capsys):
    same = {"session": 0, "session_seconds": 0.5}
    rows = [{"index": i, "length": 10 + i, "return": 2.0 * i, **same} for i in range(3)]
    summary, found = evaluation_tables.summarise({"policy": "a|b", "environment": "e"}, rows, 40, 0.9)
    evaluation_tables.show(tmp_path, summary, found, "tokens", "; a note")

    returns = summary["measures"]["return"]
    assert (returns["mean"]["value"], returns["median"]["value"]) == (2, 2)
    assert summary["measures"]["length"]["mean"]["value"] == 11
    table = (tmp_path / "table.md").read_text()
    printed = capsys.readouterr().out
    assert "| return (reward) | 2 [0, 3.37] | 2 [0, 4] | 2 [0, 3.37] | 0 to 4 |" in table
    assert "| length (steps) | 11 [10, 11.7] |" in table
    assert "3 episodes, 33 tokens, 66 tokens/s; brackets: 90 % intervals" in table
    assert table.rstrip().endswith("; a note")
    assert "return (reward)" in printed


def test_the_result_is_printed_for_a_terminal():
    played = [{"index": i, "seed": i, "return": float(i), "gold": 5.0, "length": 3.0} for i in range(12)]
    data = RunData("t", evaluations={"agent": evaluation(played), "random": evaluation(played)})
    header, cells = evaluation_sections.comparison(data)
    assert header == ["measure (unit)", "agent", "random", "agent minus random"]
    assert [row[0] for row in cells] == ["return (reward)", "length (steps)"]
    assert cells[0][-1] == "0 [0, 0]"
    assert evaluation_sections.comparison(RunData("nothing"))[1] == []


def test_what_happened_in_no_game_has_an_interval():
    played = [{"index": i, "seed": i, "return": float(i), "kills": 0.0, "xlvl": 1.0} for i in range(100)]
    of = measures.summarise_rows(played, 50, 0.95)
    assert of["kills"].mean.high == pytest.approx(0.037, abs=1e-3)
    assert (of["xlvl"].mean.low, of["xlvl"].mean.high) == (1, 1), "a level that is always 1 is no rate"
