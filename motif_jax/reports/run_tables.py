"""The numbers of a run's page as Markdown, LaTeX and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from motif_jax.reports import hacking, success, text_tables
from motif_jax.reports.evaluation_sections import MeasureRow, evaluation_note, rows_of
from motif_jax.reports.glance import facts, headline
from motif_jax.reports.measures import (
    format_estimate,
    format_interval,
    format_pairs,
    format_value,
    measure,
    with_unit,
)
from motif_jax.reports.run_data import RunData

# (label, caption, note, header, rows)
_Table = tuple[str, str, str, Sequence[str], Sequence[tuple[str, ...]]]


def _evaluation(data: RunData, rows: Sequence[MeasureRow]) -> Iterator[_Table]:
    if not rows:
        return
    names, note = list(data.evaluations), evaluation_note(data)
    header = ["measure", *names]
    for other in names[1:]:
        header += [f"{names[0]} minus {other}", f"better than {other}"]
    means = []
    for row in rows:
        cells = [format_estimate(row.of[name].mean) if name in row.of else "not measured" for name in names]
        for other in names[1:]:
            if other in row.against:
                gap, chance = row.against[other]
                cells += [f"{format_estimate(gap)} ({format_pairs(gap)})", f"{100 * chance:.0f} %"]
            else:
                cells += ["n/a", "n/a"]
        means.append((with_unit(row.what), *cells))
    yield "evaluation", "Means per episode", note, header, means
    middle = [
        (
            with_unit(row.what),
            *(format_estimate(row.of[name].iqm) if name in row.of else "n/a" for name in names),
        )
        for row in rows
        if row.what.unit != "share"
    ]
    yield (
        "iqm",
        "Interquartile means per episode",
        note.partition(" Differences:")[0],
        header[: 1 + len(names)],
        middle,
    )


def _tables(data: RunData) -> Iterator[_Table]:
    if numbers := facts(data):
        yield "glance", "At a glance", "", ("what", "value", "note"), numbers
    yield from _evaluation(data, rows_of(data))
    changes = [
        (
            f"{verdict.when[0]} to {verdict.when[1]}",
            measure(c.key).title,
            format_value(c.before),
            format_value(c.after),
            format_interval(c),
        )
        for verdict in _verdicts(data)
        for c in verdict.changes
    ]
    if changes:
        note = "Means; interval of the change: 95 % for the intrinsic return, together 95 % for the measures of progress."
        header = ("between", "measure", "before", "after", "change between")
        yield "progress", "Reward against progress", note, header, changes
    if data.labels:
        kinds = tuple(next(iter(data.labels.values())))
        labels = [(name, *(f"{counts[kind]:,}" for kind in kinds)) for name, counts in data.labels.items()]
        yield "labels", "Labels (pairs)", "", ("annotation", *kinds), labels


def _verdicts(data: RunData) -> list[hacking.Verdict]:
    """Reward against progress in words; nothing if the task's reward is the only one."""
    return [] if success.task_alone(data) else hacking.judge_run(data)


def texts(data: RunData) -> dict[str, str]:
    """Returns the texts of report.md and report.tex."""
    said = [headline(data)[0], *(verdict.line for verdict in _verdicts(data))]
    escape = text_tables.markdown_escape
    markdown = [f"# {escape(data.title)}", "", *(f"* {escape(line)}" for line in said), ""]
    latex = [*("% " + " ".join(line.split()) for line in said), ""]
    for label, caption, note, header, rows in _tables(data):
        above = ["", escape(note)] if note else []
        markdown += [f"## {escape(caption)}", *above, "", text_tables.markdown(header, rows)]
        latex.append(text_tables.latex(header, rows, f"{caption}. {note}".strip(), f"tab:{label}"))
    return {"report.md": "\n".join(markdown), "report.tex": "\n".join(latex)}


def as_json(data: RunData) -> dict[str, Any]:
    """Returns the same as plain data, numbers unrounded; None where there is none."""
    text, kind = headline(data)
    rows = rows_of(data)
    return _plain(
        {
            "title": data.title,
            "headline": {"text": text, "kind": kind},
            "facts": [dict(zip(("what", "value", "note"), fact, strict=True)) for fact in facts(data)],
            "evaluations": {
                name: {
                    **{
                        key: evaluation[key]
                        for key in ("plan", "episodes", "steps", "confidence", "intervals")
                    },
                    "measures": {row.what.key: asdict(row.of[name]) for row in rows if name in row.of},
                }
                for name, evaluation in data.evaluations.items()
            },
            "differences": [
                {
                    "first": next(iter(data.evaluations)),
                    "other": other,
                    "measure": row.what.key,
                    **asdict(gap),
                    "better_episode": chance,
                }
                for row in rows
                for other, (gap, chance) in row.against.items()
            ],
            "progress": [asdict(verdict) for verdict in _verdicts(data)],
            "dataset": data.dataset,
            "labels": data.labels,
        }
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
