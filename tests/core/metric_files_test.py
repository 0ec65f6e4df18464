"""Curves that are read from a run's files, and files that are damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.core import metric_files


def test_the_columns_of_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert metric_files.read_csv(path) == {}
    path.write_text("epoch,loss\n")
    assert metric_files.read_csv(path) == {}
    path.write_text("epoch,loss\n0,\n1,0.25\n")
    columns = metric_files.read_csv(path)
    np.testing.assert_array_equal(columns["epoch"], [0, 1])
    np.testing.assert_array_equal(columns["loss"], [np.nan, 0.25])


def test_rows_become_curves_in_the_order_of_their_steps(tmp_path: Path) -> None:
    rows = '{"step": 3, "a": 4, "b": null, "time": 1}\n{"step": 1, "a": 2, "c": "x"}\n'
    (tmp_path / "metrics.jsonl").write_text(rows)
    metrics = metric_files.read_curves(tmp_path)
    curves = {name: np.array([curve.x, curve.y]).tolist() for name, curve in metrics.items()}
    assert curves == {"a": [[1, 3], [2, 4]], "b": [[3], [pytest.approx(np.nan, nan_ok=True)]]}
    assert metric_files.best_row([{"v": None}, {"v": 2.0}, {"v": 1.0}, {"v": 1.0}], "v") == 2
