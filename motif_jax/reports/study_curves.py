"""Learning curves of a study: stored in a run's line as means over stretches of steps, drawn over seeds as in `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.reports import study
from motif_jax.reports.charts import Plot
from motif_jax.reports.plots import draw
from motif_jax.reports.smoothing import learning_curve, smooth
from motif_jax.support.files import atomic_write_bytes
from motif_jax.support.metric_files import Curve, read_episodes

KEY = "curves"
# Measures of a training's episodes; only evaluated games count messages.
MEASURES = {name: what for name, what in study.MEASURES.items() if name not in ("judged", "gathered")}
# Stretches of a run's steps.
_STRETCHES = 50


def of_run(run: Path) -> dict[str, dict[str, list[float]]]:
    """The stored curves of a training: measure -> {"step": [stretches], "mean": [stretches]}."""
    episodes, kept = read_episodes(run), {}
    for name in MEASURES:
        if name in episodes:
            means = smooth(episodes[name], _STRETCHES, band=False)
            steps: list[float] = [round(float(step)) for step in means.x]
            kept[name] = {"step": steps, "mean": [round(float(mean), 4) for mean in means.mean]}
    return kept


def plot(rows: Sequence[Mapping[str, Any]], methods: Sequence[str], measure: str) -> Plot | None:
    """A line per method that has runs with curves of `measure` (one of MEASURES); None without any."""
    lines = []
    for name in methods:
        curves = [
            Curve(np.array(kept["step"], float), np.array(kept["mean"], float))
            for row in rows
            if row["method"] == name and (kept := row.get(KEY, {}).get(measure))
        ]
        if curves:
            lines.append(learning_curve(name.replace("_", " "), curves, _STRETCHES))
    return Plot("", "environment steps", MEASURES[measure], lines) if lines else None


def write(
    page: Path, rows: Sequence[Mapping[str, Any]], curves: Mapping[str, tuple[Sequence[str], str]]
) -> list[str]:
    """Draws PNG files beside `page` for the `curves` (table -> its methods, measure) with runs; returns Markdown for each."""
    shown = []
    for title, (methods, measure) in curves.items():
        if (picture := plot(rows, methods, measure)) is not None:
            path = page.parent / "images" / f"{page.stem}_{title}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_bytes(path, draw(picture)["png"])
            what = f"{MEASURES[measure]} over the steps of the training"
            shown.append(f"![{title.replace('_', ' ')}: {what}](images/{path.name})")
    return shown
