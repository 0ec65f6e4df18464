"""The summary of an evaluation, and its table in table.md and on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from motif_jax.core.files import atomic_write_text
from motif_jax.display import measures, text_tables
from motif_jax.display.statistics import CONFIDENCE, RESAMPLES, Summary
from motif_jax.play import evaluation_files


def summarise(
    plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], dict[str, Summary]]:
    """The contents of evaluation.json, and the measures by name."""
    summaries = measures.summarise_rows(rows)
    rate, seconds = evaluation_files.speed(rows)
    summary = {
        "plan": dict(plan),
        "episodes": len(rows),
        "steps": sum(row["length"] for row in rows),
        "seconds": seconds,
        "steps_per_second": rate,
        "confidence": CONFIDENCE,
        "intervals": f"percentile bootstrap over episodes, {RESAMPLES} resamples; of what is 0 or 1 in every episode: Wilson",
        "measures": {key: asdict(value) for key, value in summaries.items()},
    }
    return summary, summaries


def write_table(
    workdir: Path, title: str, note: str, header: Sequence[str], cells: Sequence[Sequence[str]]
) -> None:
    """Writes table.md."""
    table = text_tables.markdown(header, cells)
    escape = text_tables.markdown_escape
    atomic_write_text(workdir / "table.md", f"{escape(title)}\n\n{table}\n{escape(note)}\n")


def show(
    workdir: Path,
    summary: Mapping[str, Any],
    summaries: Mapping[str, Summary],
    unit: str,
    more: str = "",
) -> None:
    """Writes table.md, and prints it without the range; `unit` names a step, `more` ends the
    note.
    """
    plan = summary["plan"]
    cells = measures.table_rows(summaries)
    title = f"{plan['policy']} on {plan['environment']}"
    note = (
        f"{summary['episodes']} episodes, {summary['steps']:,} {unit}, {summary['steps_per_second']:,.0f} {unit}/s; brackets: "
        f"{100 * summary['confidence']:g} % intervals ({summary['intervals']}){more}"
    )
    write_table(workdir, title, note, measures.HEADER, cells)
    # 80 columns have no room for the range.
    text_tables.show(measures.HEADER[:4], [row[:4] for row in cells], title, note)
