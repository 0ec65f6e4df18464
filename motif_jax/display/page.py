"""Sections of tables and charts, rendered as a page and as files."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from motif_jax.core.files import atomic_write_text
from motif_jax.display import charts, html, text_tables
from motif_jax.display.charts import Plot
from motif_jax.display.html import TableCell
from motif_jax.display.measures import format_interval, format_value


class Table(NamedTuple):
    """A table whose columns sort on a click; with `in_files` also one of the Markdown file.

    `name` is its id on the page; `note` stands below the title in the file alone; cells are strings
    (escaped) or `TableCell`; `limit` rows are shown before "show all" is pressed.
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
        """The table as HTML, with a box to search in where `search`."""
        name = escape(self.name)
        above = f'<h3 class="after">{escape(self.title)}</h3>' if self.title else ""
        if not self.rows:
            return above + html.nothing(self.empty)
        head = '<th scope="col"><button type="button">{}</button></th>'
        heads = "".join(head.format(escape(title)) for title in self.header)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
        if self.search:
            above += (
                f'<div class="tools"><input type="search" placeholder="search" aria-label="search" data-for="{name}">'
                f'<span class="count" data-for="{name}">{len(self.rows)} rows</span></div>'
            )
        limit = f' data-limit="{self.limit}"' if self.limit is not None else ""
        return (
            f'{above}<div class="scroll"><table id="{name}"{limit}><thead><tr>{heads}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def texts(self) -> list[tuple[str, ...]]:
        """The cells as text, for files and the terminal."""
        return [tuple(map(_text, row)) for row in self.rows]


# Marks the folder plots/ that a report has made.
_MADE_HERE = ".report"
# The next folder while its charts are drawn, and the last one while it is removed.
_NEXT_PLOTS = ".plots-next"
_LAST_PLOTS = ".plots-last"


def _cell(cell: Any) -> str:
    if not isinstance(cell, TableCell):
        cell = TableCell(str(cell))
    attributes = ' class="code"' if cell.code else ""
    if cell.value is not None:
        attributes = f' class="number" data-value="{float(cell.value)!r}"'
    note = f"<small>{escape(cell.note)}</small>" if cell.note else ""
    text = escape(cell.text) or "&nbsp;"
    if cell.link:
        # As an address: '#', '?' or '%' in a folder's name would lead elsewhere.
        text = f'<a href="{quote(os.fsencode(cell.link))}">{text}</a>'
    return f"<td{attributes}>{text}{note}</td>"


def _text(cell: Any) -> str:
    return f"{cell.text} {cell.note}".strip() if isinstance(cell, TableCell) else str(cell)


class Fold(NamedTuple):
    """Tables and charts that open on a click."""

    summary: str
    parts: Sequence[Any]


class Section(NamedTuple):
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
    elements = []
    # Adjacent charts share a grid.
    for are_plots, group in groupby(parts, lambda part: isinstance(part, Plot)):
        if are_plots:
            elements.append(html.grid(*map(charts.figure, group)))
            continue
        for part in group:
            if isinstance(part, Fold):
                inside = f'<div class="inside">{_html(part.parts)}</div>'
                elements.append(
                    f"<details><summary>{escape(part.summary)}</summary>{inside}</details>"
                )
            elif isinstance(part, str):
                elements.append(part)
            elif part.on_page:
                elements.append(part.html())
    return "".join(elements)


def _section(section: Section) -> str:
    note = f'<p class="explain">{escape(section.note)}</p>' if section.note else ""
    heading = f"<h2>{escape(section.title)}</h2>{note}"
    return f'<section id="{escape(section.name)}">{heading}{_html(section.parts)}</section>'


def render(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    before: str = "",
    after: str = "",
    menu: bool = True,
) -> str:
    """The page; `before` is HTML above the sections, `after` HTML at the end."""
    links = ""
    if menu:
        links = "".join(
            f'<a href="#{escape(section.name)}">{escape(section.title)}</a>' for section in sections
        )
    body = before + "".join(map(_section, sections))
    return html.page(title, subtitle, body, links, after)


def markdown(title: str, lines: Sequence[str], sections: Sequence[Section]) -> str:
    """The page as Markdown: `lines`, then the tables with `in_files`."""
    quoted = text_tables.markdown_escape
    texts = [f"# {quoted(title)}", "", *(f"* {quoted(line)}" for line in lines), ""]
    for section, table in file_tables(sections):
        caption = table.title or section.title
        note = table.note or section.note
        texts.append(f"## {quoted(caption)}")
        if note:
            texts += ["", quoted(note)]
        texts += ["", text_tables.markdown(table.header, table.texts())]
    return "\n".join(texts)


def write(
    folder: Path,
    stem: str,
    title: str,
    lines: Sequence[str],
    sections: Sequence[Section],
    with_plots: bool,
) -> Path:
    """Writes STEM.html, its `markdown` and, with `with_plots`, the `plots` below plots/, none of an
    earlier report; returns the page's path.
    """
    written = f"motif_jax, written {time.strftime('%Y-%m-%d %H:%M')}"
    atomic_write_text(folder / f"{stem}.md", markdown(title, lines, sections))
    atomic_write_text(folder / f"{stem}.html", render(title, written, sections))
    _replace_plots(folder, plots(sections) if with_plots else {})
    return (folder / f"{stem}.html").resolve()


def _replace_plots(folder: Path, drawn: Mapping[str, Plot]) -> None:
    """Replaces the folder plots/ of an earlier report, which is whole or missing after a kill.
    Where plots/ is the user's, it writes the charts beside the user's files.
    """
    plots_folder = folder / "plots"
    next_folder = folder / _NEXT_PLOTS
    last_folder = folder / _LAST_PLOTS
    for left_by_a_kill in (next_folder, last_folder):
        shutil.rmtree(left_by_a_kill, ignore_errors=True)
    # Without the mark the folder is the user's, and nothing in it is removed.
    if plots_folder.exists() and not (plots_folder / _MADE_HERE).exists():
        charts.write(plots_folder, drawn)
        return

    if drawn:
        next_folder.mkdir()
        (next_folder / _MADE_HERE).touch()
        charts.write(next_folder, drawn)
    if plots_folder.exists():
        # Renamed and not removed: a kill between the renames leaves no folder, and never a part.
        plots_folder.rename(last_folder)
    if drawn:
        next_folder.rename(plots_folder)
    shutil.rmtree(last_folder, ignore_errors=True)


def all_parts(parts: Sequence[Any]) -> Iterator[Any]:
    """The parts in order, and those inside folds."""
    for part in parts:
        if isinstance(part, Fold):
            yield from all_parts(part.parts)
        else:
            yield part


def file_tables(sections: Sequence[Section]) -> Iterator[tuple[Section, Table]]:
    """The tables with `in_files`, each with its section."""
    for section in sections:
        for part in all_parts(section.parts):
            if isinstance(part, Table) and part.in_files and part.rows:
                yield section, part


def plots(sections: Sequence[Section]) -> dict[str, Plot]:
    """File name -> chart, for charts that are written to files."""
    by_file = {}
    for section in sections:
        for part in all_parts(section.parts):
            if isinstance(part, Plot) and part.file and part.drawable:
                by_file[part.file] = part
    return by_file
