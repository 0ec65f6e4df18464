"""Logs and returns of GLAM's published tool beside runs of ours."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.published import glam_results
from motif_jax.stages import compare
from motif_jax.support.errors import UserError
from tests.reward_fixtures import load_config


def write_log(folder, shift=0.0):
    folder.mkdir()
    rows = [f"{n},{1280 * (n + 1)},{0.1 * n + shift},{0.05 * n + shift},30" for n in range(12)]
    header = "update,frames,return_mean,success_rate,num_frames_mean"
    (folder / "log.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder


def configured(methods, **changes):
    config = load_config("compare", "")
    changes = {"published_task": "BabyAI-GoToLocal-v0", "plots": False, "resamples": 20, **changes}
    config.update_from_flattened_dict({"methods": methods, **changes})
    return config


def test_a_log_is_a_curve_over_frames(tmp_path):
    curve = glam_results.read_curve(write_log(tmp_path / "log"), "success")
    np.testing.assert_allclose(curve.x[:2], [1280, 2560])
    np.testing.assert_allclose(curve.y[1], 0.05)
    with pytest.raises(UserError, match="measure=score"):
        glam_results.read_curve(tmp_path / "log", "score")


def test_logs_and_returns_are_compared(tmp_path):
    folders = [write_log(tmp_path / name, shift) for name, shift in (("one", 0.0), ("two", 0.1))]
    paths = []
    for number in range(2):
        paths.append(tmp_path / f"no_modification_test_{number}.npy")
        np.save(paths[-1], np.array([0.0, 0.5, 1.0, 0.0]) * (1 + number))
    methods = f"published={folders[0]},{folders[1]}; a={paths[0]}; b={paths[1]}"
    config = configured(methods, measure="success")
    compare.check(config, tmp_path / "out")
    compare.run(config, tmp_path / "out")
    page = (tmp_path / "out" / "comparison.html").read_text()
    assert "BabyAI-GoToLocal-v0" in page
    assert "published" in page
    with pytest.raises(UserError, match="published_task"):
        compare.check(configured(methods, published_task=None), tmp_path / "out")


def test_objects_are_not_unpickled(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}, None], object), allow_pickle=True)
    with pytest.raises(UserError, match="file of numbers"):
        glam_results.read_returns(tmp_path / "objects.npy")
