from __future__ import annotations

import json

import numpy as np

from motif_jax.core.metric_files import Curve
from motif_jax.reports import evaluation_tables, page, run_report
from motif_jax.reports.evaluation_sections import rows_of
from motif_jax.reports.run_data import RunData
from tests.made_up_runs import run_page, run_texts
from tests.recorded_outputs import compared
from tests.reports.glance_test import evaluation


def test_numbers_that_only_the_task_knows_are_shown_behind_the_others():
    def played(shift):
        same = {"kind": 2.0, "session": 0, "end_reason": "end"}
        numbers = [{"return": float(i), "apples_eaten": i % 3 + shift} for i in range(12)]
        return evaluation([{"index": i, "seed": i, **same, **row} for i, row in enumerate(numbers)])

    data = RunData("t")
    data.evaluations = {"agent": played(1.0), "random": played(0.0)}
    data.episodes = {key: Curve(np.arange(9.0), np.ones(9)) for key in ("env", "apples_eaten", "return")}
    assert [row.what.key for row in rows_of(data)] == ["return", "apples_eaten"]
    [found] = [d for d in run_report.as_json(data)["differences"] if d["measure"] == "apples_eaten"]
    assert found["value"] == 1
    for text in (*run_texts(data).values(), run_page(data)):
        assert "apples eaten" in text
    assert list(page.plots(run_report.sections(data))) == [
        f"{which}_{key}" for which in ("evaluation", "training") for key in ("return", "apples_eaten")
    ]


def test_an_evaluation_is_summarised_and_its_table_written(tmp_path, capsys, record):
    same = {"session": 0, "session_seconds": 0.5}
    rows = [{"index": i, "length": 10 + i, "return": 2.0 * i, **same} for i in range(3)]
    summary, found = evaluation_tables.summarise({"policy": "a|b", "environment": "e"}, rows, 40, 0.9)
    evaluation_tables.show(tmp_path, summary, found, "tokens", "; a note")
    told = {"summary": json.dumps(summary), "table": (tmp_path / "table.md").read_text()}
    compared("table_of_evaluation", told | {"printed": capsys.readouterr().out}, record)
