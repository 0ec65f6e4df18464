"""Logs and returns of GLAM's published tool beside runs of ours."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.metric_files import Curve
from motif_jax.published import results
from motif_jax.reports import curves


def write_log(folder, shift=0.0):
    folder.mkdir()
    rows = [f"{n},{1280 * (n + 1)},{0.1 * n + shift},{0.05 * n + shift},30" for n in range(12)]
    header = "update,frames,return_mean,success_rate,num_frames_mean"
    (folder / "log.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder


def test_a_log_is_a_curve_over_frames(tmp_path):
    by_measure = results.read_log(write_log(tmp_path / "log"))
    curve = by_measure["success"]
    assert list(by_measure) == ["return", "success", "length"]
    np.testing.assert_allclose([*curve.x[:2], curve.y[1]], [1280, 2560, 0.05])


def test_objects_are_not_unpickled(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}, None], object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        results.read_returns(tmp_path / "objects.npy")


def test_runs_without_a_value_by_the_step_do_not_count():
    def run(first, last):
        steps = np.arange(first, last + 1, 100.0)
        return curves.Learned("ours", "task", {"return": Curve(steps, np.ones(len(steps)))})

    runs = [run(0, 500), run(0, 1000), run(600, 1000)]
    ((_, _, count, end, curve),) = curves.efficiency_rows(runs, "return")
    assert (count, end, curve.value) == (2, 500, 1)
    ((_, _, count, _, curve),) = curves.efficiency_rows(runs[2:], "return")
    assert (count, curve.value) == (1, 1)
    assert curves.efficiency_rows(runs, "success") == []
