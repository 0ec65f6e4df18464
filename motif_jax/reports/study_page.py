"""The page of a study: its tables, its claims, and the learning curves of its trainings with bands
over the seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from motif_jax.core import metric_files, run_folder
from motif_jax.core.metric_files import Curve
from motif_jax.display import page
from motif_jax.display.charts import Plot
from motif_jax.display.measures import measure, with_unit
from motif_jax.display.page import Section
from motif_jax.reports import study
from motif_jax.reports.comparison_page import curves_section
from motif_jax.reports.smoothing import LEAST, learning_curve

# Of the page and the folder of its pictures.
STEM = "study"


def write(
    workdir: Path,
    tables: Sequence[study.MethodTable],
    claims: str,
    trainings: Mapping[str, Sequence[Path]],
    measures: Sequence[str],
) -> Path:
    """Writes study.html, study.md and plots/ into `workdir`, and returns the page's path.

    Args:
        tables: a section each.
        claims: the claims in Markdown, empty where there are none.
        trainings: method -> the folders of its finished trainings. Those that lie elsewhere, or
            have no episodes of train_agent, have no curve; beside the curves of others the page
            names the missing ones.
        measures: the numbers of episodes whose curves are shown.
    """
    sections = []
    for number, table in enumerate(tables):
        title, *_ = table.header
        rows = page.Table(f"table-{number}", table.header, table.rows, in_files=True)
        sections.append(Section(title, f"methods-{number}", [rows], table.note))
    if claims:
        items = "".join(
            f"<li>{escape(line[2:].replace('**', ''))}</li>" for line in claims.splitlines()[2:]
        )
        sections.append(Section("Claims", "claims", [f"<ul>{items}</ul>"], claims.splitlines()[0]))
    plots = list(_plots(trainings, measures))
    if plots:
        curves = curves_section(plots)
        sections.append(
            curves._replace(note=f"{curves.note} {_missing_curves(trainings)}".rstrip())
        )
    return page.write(workdir, STEM, f"Study {workdir.name}", [], sections, with_plots=True)


def _plots(trainings: Mapping[str, Sequence[Path]], measures: Sequence[str]) -> Iterator[Plot]:
    """A chart for each measure and task, with a line for each method."""
    episodes: dict[str, dict[str, list[Mapping[str, Curve]]]] = {}  # task -> method -> its runs
    for method, folders in trainings.items():
        for folder in folders:
            task = _task_of(folder)
            if task is not None:
                runs = episodes.setdefault(task, {}).setdefault(method, [])
                runs.append(metric_files.read_episodes(folder))
    for task, runs_of_method in episodes.items():
        for key in measures:
            lines = []
            for method, runs in runs_of_method.items():
                curves = [run[key] for run in runs if key in run]
                if curves:
                    lines.append(learning_curve(method, curves, least=LEAST))
            if lines:
                y_label = with_unit(measure(key))
                yield Plot(task, "environment steps", y_label, lines, file=f"{key}_{task}")


def _missing_curves(trainings: Mapping[str, Sequence[Path]]) -> str:
    """A sentence that names the trainings whose folders lie elsewhere; '' where all are here."""
    missing = []
    for method, folders in trainings.items():
        number = sum(not (folder / run_folder.CONFIG).is_file() for folder in folders)
        if number:
            missing.append(f"{method} ({number} of {len(folders)})")
    return (
        f"Trainings whose folders are not here have no curve: {', '.join(missing)}."
        if missing
        else ""
    )


def _task_of(folder: Path) -> str | None:
    """The environment of a run of train_agent, None of any other folder."""
    if not (folder / run_folder.CONFIG).is_file():
        return None
    config = run_folder.read_config(folder)
    is_training = config.get("stage") == "train_agent"
    return config.get("environment", {}).get("name") if is_training else None
