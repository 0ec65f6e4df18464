"""The learning curves of a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.reports import study_curves


def write_episodes(run: Path, count: int, slope: float) -> None:
    run.mkdir(parents=True)
    rows = [{"step": 10 * (at + 1), "score": slope * at, "dlvl": 1.0, "fame": 3.0} for at in range(count)]
    (run / "episodes.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))


def row(method: str, seed: int, run: Path) -> dict[str, Any]:
    return {"method": method, "seed": seed, study_curves.KEY: study_curves.of_run(run)}


def test_a_line_keeps_the_means_of_the_trainings_episodes(tmp_path: Path) -> None:
    write_episodes(tmp_path / "run", 1000, 2.0)
    kept = study_curves.of_run(tmp_path / "run")
    assert set(kept) == {"score", "dlvl"}, "of the measures that a picture can show"
    steps, means = np.array(kept["score"]["step"]), np.array(kept["score"]["mean"])
    assert len(steps) == len(means) == 50
    # The mean of a stretch of a straight line lies on the line.
    np.testing.assert_allclose(means, 2.0 * (steps / 10 - 1), atol=0.2)
    assert (steps[0], steps[-1]) == pytest.approx((105, 9905), abs=10)
    assert json.loads(json.dumps(kept)) == kept


def test_lines_are_means_over_the_seeds_of_a_method(tmp_path: Path) -> None:
    for seed, slope in enumerate((1.0, 2.0, 6.0)):
        write_episodes(tmp_path / f"rising-{seed}", 1000, slope)
    write_episodes(tmp_path / "flat", 1000, 0.0)
    rows = [row("a_rising_one", seed, tmp_path / f"rising-{seed}") for seed in range(3)]
    rows += [row("flat", 0, tmp_path / "flat"), {"method": "old", "seed": 0}]
    picture = study_curves.plot(rows, ["flat", "a_rising_one", "old", "not_run"], "score")
    assert picture is not None
    flat, rising = picture.lines
    assert (flat.name, rising.name) == ("flat (n = 1)", "a rising one (n = 3)")
    assert flat.low is None
    assert rising.low is not None
    np.testing.assert_array_equal(flat.y, 0.0)
    # Three seeds have no quarters to leave out: their mean, three times the slope of one, within half a stretch.
    np.testing.assert_allclose(rising.y, 3.0 * (rising.x / 10 - 1), atol=3.0 * 1000 / 50 / 2)
    assert (rising.low <= rising.y).all()
    tables = {"a": (["flat"], "score"), "b": (["not_run"], "score")}
    shown = study_curves.write(tmp_path / "page.md", rows, tables)
    assert shown == ["![a: score over the steps of the training](images/page_a.png)"]
    assert (tmp_path / "images" / "page_a.png").read_bytes().startswith(b"\x89PNG")
