"""Sections of tables and charts, rendered as a page and as files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from motif_jax.reports import charts, html, text_tables
from motif_jax.reports.charts import Plot
from motif_jax.reports.html import TableCell
from motif_jax.reports.measures import format_interval, format_value


@dataclass(frozen=True)
class Table:
    """A table of the page, with `in_files` also of the Markdown and LaTeX files.

    Attributes:
      name: its id, and its label in LaTeX.
      note: text below the title in files; on the page the section has it.
      header, rows, search, empty, limit: see `html.table`.
    """

    name: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    note: str = ""
    in_files: bool = False
    on_page: bool = True
    search: bool = False
    empty: str = "nothing to show"
    limit: int | None = None

    def html(self) -> str:
        above = html.heading(self.title) if self.title else ""
        return above + html.table(self.header, self.rows, self.name, self.search, self.empty, self.limit)

    def texts(self) -> list[tuple[str, ...]]:
        return [tuple(map(_text, row)) for row in self.rows]


def _text(cell: Any) -> str:
    return f"{cell.text} {cell.note}".strip() if isinstance(cell, TableCell) else str(cell)


@dataclass(frozen=True)
class Fold:
    """Tables and charts that open on a click."""

    summary: str
    parts: Sequence[Any]


@dataclass(frozen=True)
class Section:
    """A section of tables, plots (adjacent ones side by side), folds and HTML; `name` is its id."""

    title: str
    name: str
    parts: Sequence[Any]
    note: str = ""


def estimate_cell(estimate: Any, more: str = "") -> TableCell:
    """A cell with an estimate, and its interval and `more` below; 'n/a' without a value."""
    if not math.isfinite(estimate.value):
        return TableCell("n/a")
    note = ", ".join(filter(None, [format_interval(estimate), more]))
    return TableCell(format_value(estimate.value), estimate.value, note=note)


def _html(parts: Sequence[Any]) -> str:
    shown = []
    for drawn, group in groupby(parts, lambda part: isinstance(part, Plot)):
        if drawn:
            shown.append(html.grid(*(charts.figure(plot) for plot in group)))
            continue
        for part in group:
            if isinstance(part, Fold):
                shown.append(html.fold(part.summary, _html(part.parts)))
            elif isinstance(part, str):
                shown.append(part)
            elif part.on_page:
                shown.append(part.html())
    return "".join(shown)


def render(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    before: str = "",
    after: str = "",
    menu: bool = True,
) -> str:
    """The page; `before` is HTML above the sections, `after` HTML at the end."""
    links = {section.name: section.title for section in sections} if menu else {}
    shown = (html.section(s.title, s.name, _html(s.parts), note=s.note) for s in sections)
    return html.page(title, subtitle, [before, *shown], links, after)


def texts(title: str, lines: Sequence[str], sections: Sequence[Section], stem: str) -> dict[str, str]:
    """The texts of STEM.md and STEM.tex: `lines`, then the tables with `in_files`."""
    escape = text_tables.markdown_escape
    markdown = [f"# {escape(title)}", "", *(f"* {escape(line)}" for line in lines), ""]
    latex = [*("% " + " ".join(line.split()) for line in lines), ""]
    for section, table in file_tables(sections):
        caption, note = table.title or section.title, table.note or section.note
        above = ["", escape(note)] if note else []
        rows = table.texts()
        markdown += [f"## {escape(caption)}", *above, "", text_tables.markdown(table.header, rows)]
        latex.append(text_tables.latex(table.header, rows, f"{caption}. {note}".strip(), f"tab:{table.name}"))
    return {f"{stem}.md": "\n".join(markdown), f"{stem}.tex": "\n".join(latex)}


def file_tables(sections: Sequence[Section]) -> Iterator[tuple[Section, Table]]:
    """The tables with `in_files`, each with its section."""
    for section in sections:
        for part in section.parts:
            if isinstance(part, Table) and part.in_files and part.rows:
                yield section, part


def plots(sections: Sequence[Section]) -> dict[str, Plot]:
    """File name -> chart, for charts that are written to files."""
    found = (part for section in sections for part in section.parts if isinstance(part, Plot))
    return {plot.file: plot for plot in found if plot.file and plot.drawable}
