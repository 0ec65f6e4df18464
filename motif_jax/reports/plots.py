"""The charts of reports as PNG and PDF files, for papers and slides."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path

from motif_jax.reports import language_section
from motif_jax.reports.charts import Plot, picture
from motif_jax.reports.evaluation_sections import intervals_of, rows_of
from motif_jax.reports.measures import in_order, with_unit
from motif_jax.reports.run_data import RunData
from motif_jax.reports.training_sections import (
    MESSAGE_AXES,
    by_epoch,
    episode_curves,
    message_lines,
    metric_caption,
    metric_groups,
    metric_lines,
)
from motif_jax.support.files import atomic_write_bytes

_LONGEST_STEM = 100  # characters of a file name


def draw(plot: Plot) -> dict[str, bytes]:
    """Returns the picture as {'png': bytes, 'pdf': bytes}."""
    figure, pictures = picture(plot), {}
    for kind in ("png", "pdf"):
        buffer = io.BytesIO()
        # Without dates two runs write the same bytes.
        figure.savefig(
            buffer, format=kind, dpi=200, metadata={"CreationDate": None} if kind == "pdf" else None
        )
        pictures[kind] = buffer.getvalue()
    return pictures


def file_stem(name: str) -> str:
    """Returns `name`, which may come from a file of somebody else's, as a file name that stays in its folder."""
    stem = re.sub(r"[^A-Za-z0-9._+-]+", "_", name).lstrip(".")
    return stem[:_LONGEST_STEM] or "_"


def write(folder: str | os.PathLike[str], plots: Mapping[str, Plot]) -> list[Path]:
    """Writes every plot as folder/NAME.png and folder/NAME.pdf, see `file_stem`; returns the paths."""
    paths: list[Path] = []
    taken: set[str] = set()
    for name, plot in plots.items():
        stem, number = file_stem(name), 2
        while stem.lower() in taken:  # other names that are the same without their odd characters
            stem, number = f"{file_stem(name)}-{number}", number + 1
        taken.add(stem.lower())
        for kind, data in draw(plot).items():
            path = Path(folder) / f"{stem}.{kind}"
            atomic_write_bytes(path, data)
            paths.append(path)
    return paths


def of_run(data: RunData) -> dict[str, Plot]:
    """Returns the plots of a run: task numbers and metrics over training, reward training, messages, evaluations."""
    plots: dict[str, Plot] = {}
    for what, curve in episode_curves(data, in_order(data.episodes)):
        plots[f"training_{what.key}"] = Plot(
            "environment steps", with_unit(what), (curve.series(),), note=curve.caption("episodes")
        )
    for row in rows_of(data) if data.evaluations else ():
        label = f"mean {with_unit(row.what)}"
        plots[f"evaluation_{row.what.key}"] = Plot(label, "", intervals=tuple(intervals_of(data, row)))
    for title, unit, members in metric_groups(data):
        name = "metric_" + title.replace(" ", "_")
        lines, note = tuple(metric_lines(members)), metric_caption(members)
        plots[name] = Plot("environment steps", f"{title} ({unit})", lines, note=note)
    if data.message_curves:
        plots["reward_by_message"] = Plot(*MESSAGE_AXES, tuple(message_lines(data)))
    loss = [
        *by_epoch("training", data.reward_train, "total_train_loss"),
        *by_epoch("validation", data.reward_validation, "total_val_loss"),
    ]
    for title, unit, names, _ in language_section.FIGURES if data.language else ():
        plots[f"language_{title.replace(' ', '_')}"] = Plot(
            "step of the optimiser", unit, tuple(language_section.lines(data.language, names))
        )
    if loss:
        plots["reward_loss"] = Plot("epoch", "cross-entropy (nats per pair)", tuple(loss))
    return plots
