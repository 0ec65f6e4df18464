"""The page of a study: its tables and claims, and the learning curves of its trainings with bands
over the seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from motif_jax.core.metric_files import Curve
from motif_jax.display import html, page
from motif_jax.display.charts import Plot, Series
from motif_jax.display.measures import measure, with_unit
from motif_jax.display.page import Section
from motif_jax.reports import efficiency, study
from motif_jax.reports.efficiency import Learned
from motif_jax.reports.probe_report import Probes, heatmap
from motif_jax.reports.smoothing import LEAST, RESAMPLES, learning_curve

# Of the page and the folder of its pictures.
STEM = "study"
# With fewer values the interquartile mean equals the mean.
_IQM_VALUES = 4


@dataclass(frozen=True)
class StudyData:
    """The data of the page.

    Attributes:
      tables: a section each.
      claims: the claims in Markdown, '' where there are none.
      trainings: each with the curves of its episodes' numbers.
      without_curve: a sentence on trainings that have no curve, or ''.
      published: task -> published curves of mean returns.
      probes: the probes of logs of GLAM's published tool, by name.
      provenance: (title, text) of configs and versions.
    """

    tables: Sequence[study.MethodTable]
    claims: str = ""
    trainings: Sequence[Learned] = ()
    without_curve: str = ""
    published: Mapping[str, Sequence[Series]] = field(default_factory=dict)
    probes: Mapping[str, Probes] = field(default_factory=dict)
    provenance: Sequence[tuple[str, str]] = ()


def write(workdir: Path, data: StudyData, measures: Sequence[str]) -> Path:
    """Writes study.html, study.md and plots/ into `workdir`, and returns the page's path.

    Args:
        measures: the numbers of episodes whose curves are shown.
    """
    name = workdir.name
    # Many a folder's name says study already.
    title = f"{name[:1].upper()}{name[1:]}" if "study" in name.lower() else f"Study {name}"
    return page.write(workdir, STEM, title, [], sections(data, measures), with_plots=True)


def sections(data: StudyData, measures: Sequence[str]) -> list[Section]:
    """The sections of the page, in order."""
    shown = []
    for number, table in enumerate(data.tables):
        title, *_ = table.header
        rows = page.Table(f"table-{number}", table.header, table.rows, in_files=True)
        shown.append(Section(title, f"methods-{number}", [rows], table.note))
    if data.claims:
        note, *lines = filter(None, data.claims.splitlines())
        items = "".join(f"<li>{escape(line[2:].replace('**', ''))}</li>" for line in lines)
        shown.append(Section("Claims", "claims", [f"<ul>{items}</ul>"], note))
    plots = list(_plots(data, measures))
    if plots:
        shown.append(_curves(plots, data))
    if data.trainings:
        shown.append(efficiency.section(data.trainings, measures))
    if data.probes:
        shown.append(_probes(data.probes))
    if data.provenance:
        parts = [html.details(*text) for text in data.provenance]
        shown.append(Section("How it was made", "provenance", parts))
    return shown


def _plots(data: StudyData, measures: Sequence[str]) -> Iterator[Plot]:
    """A chart for each measure and task, with a line for each method."""
    tasks = dict.fromkeys([*(run.task for run in data.trainings), *data.published])
    for task in tasks:
        for key in measures:
            seeds: dict[str, list[Curve]] = {}
            for run in data.trainings:
                if run.task == task and key in run.curves:
                    seeds.setdefault(run.method, []).append(run.curves[key])
            lines = [
                learning_curve(method, curves, least=LEAST) for method, curves in seeds.items()
            ]
            if key == "return":
                lines += data.published.get(task, ())
            if lines:
                y_label = with_unit(measure(key))
                yield Plot(task, "environment steps", y_label, lines, file=f"{key}_{task}")


def _curves(plots: Sequence[Plot], data: StudyData) -> Section:
    note = (
        f"Smoothed: finished episodes are averaged over stretches of steps, each so long that every run ended at least {LEAST} in "
        f"it (a fifth of all where a run has fewer than {5 * LEAST}). Lines: interquartile mean over seeds, of fewer than {_IQM_VALUES} the mean. "
        f"Bands: 95 % bootstrap interval over seeds ({RESAMPLES} resamples; none with one seed). Up to the end of the shortest run."
    )
    if data.published:
        note += " Dashed: published results."
    return Section("Learning curves", "curves", plots, f"{note} {data.without_curve}".rstrip())


def _probes(probes_of: Mapping[str, Probes]) -> Section:
    note = (
        "What agents of the published tool would do in its fixed situations (distrib.csv). One row per action, one column per update; a stronger "
        "colour is a higher probability. Scores that are not probabilities are turned into them by softmax."
    )
    parts: list[Any] = []
    for name, probes in probes_of.items():
        figures = [
            html.figure(f"{name}, {probe}", heatmap(probes, index))
            for index, probe in enumerate(probes.names)
        ]
        parts.append(html.grid(*figures))
    return Section("Probes", "probes", parts, note)
