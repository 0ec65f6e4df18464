"""Logs and returns of GLAM's published tool beside runs of ours."""

from __future__ import annotations

import json

import numpy as np
import pytest

from motif_jax.published import glam_results
from motif_jax.reports import efficiency
from motif_jax.stages import compare
from motif_jax.support.errors import UserError
from motif_jax.support.metric_files import Curve
from tests.reward_fixtures import load_config


def write_log(folder, shift=0.0):
    folder.mkdir()
    rows = [f"{n},{1280 * (n + 1)},{0.1 * n + shift},{0.05 * n + shift},30" for n in range(12)]
    header = "update,frames,return_mean,success_rate,num_frames_mean"
    (folder / "log.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder


def configured(methods, **changes):
    usual = {"published_task": "BabyAI-GoToLocal-v0", "plots": False, "resamples": 20}
    return load_config("compare", "", {"methods": methods, **usual, **changes})


def test_a_log_is_a_curve_over_frames(tmp_path):
    curve = glam_results.read_curve(write_log(tmp_path / "log"), "success")
    np.testing.assert_allclose([*curve.x[:2], curve.y[1]], [1280, 2560, 0.05])
    with pytest.raises(UserError, match="measure=score"):
        glam_results.read_curve(tmp_path / "log", "score")
    (tmp_path / "log" / "log.csv").write_text("update,frames\n1,2\n")
    with pytest.raises(UserError, match="no row with frames and success_rate: it is not a log of"):
        glam_results.read_curve(tmp_path / "log", "success")


def test_objects_are_not_unpickled(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}, None], object), allow_pickle=True)
    with pytest.raises(UserError, match="file of numbers"):
        glam_results.read_returns(tmp_path / "objects.npy")
    for array in (np.array([1, np.nan]), np.zeros(0), np.array(["a"])):
        np.save(tmp_path / "others.npy", array)
        with pytest.raises(UserError, match=r"others\.npy is no \.npy file of finite numbers"):
            glam_results.read_returns(tmp_path / "others.npy")


def write_run(folder, reached, steps=1000):
    """A training of ours whose success rises to `reached` half way."""
    folder.mkdir()
    environment = {"name": "BabyAI-GoToLocal-v0"}
    (folder / "config.json").write_text(json.dumps({"stage": "train_agent", "environment": environment}))
    rows = ({"step": step, "success": reached * (step > steps / 2)} for step in range(0, steps + 1, 10))
    (folder / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.slow
def test_efficiency_is_the_mean_of_the_curve(tmp_path):
    runs = [write_run(tmp_path / f"run_{seed}", most) for seed, most in enumerate((0.82, 0.72))]
    log = write_log(tmp_path / "RUN_nbr_actions_9_turn_left_seed_1")
    lines = ["0.1,0.2,0.7,0,0,0,0,0,0" + ",0.5,0.5,0,0,0,0,0,0,0" for _ in range(12)]
    (log / "distrib.csv").write_text("\n".join(lines) + "\n")
    tested = tmp_path / "no_modification_test_1.npy"
    np.save(tested, np.array([0.0, 0.5, 1.0, 0.0]))
    methods = f"ours={','.join(map(str, runs))}; published={log}; tested={tested}"
    config = configured(methods, measure="success", efficiency_steps=900)
    compare.check(config, tmp_path / "out")
    compare.run(config, tmp_path / "out")
    page = (tmp_path / "out" / "comparison.html").read_text()
    assert [text for text in ("tested", "situation 2", "do nothing at step") if text not in page] == []
    # Nothing until half way, then as much as it reaches: of 900 steps 400.
    curve = compare._training_curve(runs[0], "success")[1]
    assert efficiency.efficiency(curve, 900) == pytest.approx(0.82 * 400 / 900, abs=0.02)
    with pytest.raises(UserError, match="efficiency_steps=5000: must be at most 1000"):
        compare.run(configured(methods, measure="success", efficiency_steps=5000), tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(UserError, match="published_task"):
        compare.check(configured(methods, published_task=None), tmp_path / "none")


def test_runs_without_a_value_up_to_the_step_do_not_count():
    def run(first, last):
        steps = np.arange(first, last + 1, 100.0)
        return efficiency.Learned("ours", "task", Curve(steps, np.ones(len(steps))))

    runs = [run(0, 500), run(0, 1000), run(600, 1000)]
    ((_, _, count, end, found),) = efficiency.table(runs, None)
    assert (count, end, found.value) == (2, 500, 1)
    ((_, _, count, _, found),) = efficiency.table(runs[2:], None)
    assert (count, found.value) == (1, 1)
    with pytest.raises(UserError, match="efficiency_steps=1: must be at least 600"):
        efficiency.table(runs[2:], 1)
