"""Formats tables as Markdown and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from motif_jax.core.errors import printable


def markdown_escape(text: str) -> str:
    """Escapes `text` for Markdown: no HTML, no links, one line."""
    shown = printable(" ".join(text.split("\n")))
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace("](", "]\\(")


def csv_cell(text: str) -> str:
    """Puts a ' before text that a spreadsheet would read as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; pipes, line breaks and HTML in cells are escaped."""

    def line(cells: Sequence[str]) -> str:
        escaped = (
            markdown_escape(cell.replace("\\", "\\\\").replace("|", "\\|")) for cell in cells
        )
        return "| " + " | ".join(escaped) + " |"

    return (
        "\n".join([line(header), "|" + " --- |" * len(header), *(line(row) for row in rows)]) + "\n"
    )


def terminal(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str,
    caption: str = "",
    text_first: bool = False,
) -> Table:
    """A rich table, at most as wide as the terminal if the longest words fit; markup in cells is
    not interpreted.

    With `text_first` the first column wraps, else the others do, an interval '[a, b]' below its
    value.
    """
    header = list(map(_lines, header))
    rows = [[_lines(cell, not text_first) for cell in row] for row in rows]
    table = Table(title=Text(_lines(title)), title_justify="left")
    if caption:
        table.caption = Text(_lines(caption))

    # Widths of our own: rich may shrink a column below the width that it is asked to keep, and then
    # cuts the last column off.
    widths, largest = _bounds(header, rows, text_first)
    borders = 3 * len(header) + 1
    spare = Console().width - borders - sum(widths)
    # The columns that lack least are widened first: then they need not wrap.
    for column in sorted(range(len(header)), key=lambda column: largest[column] - widths[column]):
        widening = max(0, min(largest[column] - widths[column], spare))
        widths[column] += widening
        spare -= widening

    for column, name in enumerate(header):
        justify: JustifyMethod = "right" if column else "left"
        table.add_column(Text(name), justify=justify, overflow="fold", width=widths[column])
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _lines(text: str, intervals: bool = False) -> str:
    """What a cell shows; with `intervals` each '[a, b]' is on a line of its own."""
    if intervals:
        text = text.replace(" [", "\n[")
    return "\n".join(map(printable, text.split("\n")))


def _bounds(
    header: Sequence[str], rows: Sequence[Sequence[str]], text_first: bool
) -> tuple[list[int], list[int]]:
    """The smallest and the largest useful width of each column: its longest word where it wraps,
    and its longest line.
    """
    smallest = []
    largest = []
    for column, (name, *cells) in enumerate(zip(header, *rows, strict=True)):
        lines = [line for cell in cells for line in cell.split("\n")]
        # With `text_first` the first column wraps, else all others do.
        wraps = (column == 0) == text_first
        words = name.split()
        if wraps:
            words += [word for line in lines for word in line.split()]
        # A longer word, such as a path, is folded.
        longest_word = min(24, max(map(cell_len, words), default=0))
        longest_line = max([longest_word, *map(cell_len, lines)])
        smallest.append(longest_word if wraps else longest_line)
        largest.append(longest_line)
    return smallest, largest


def show(
    header: Sequence[str], rows: Sequence[Sequence[str]], title: str, caption: str = ""
) -> None:
    """Prints a table; where its columns do not fit the terminal, each row is a table of its own."""
    console = Console()
    table = terminal(header, rows, title, caption)
    if sum((column.width or 0) + 3 for column in table.columns) + 1 <= console.width:
        console.print(table)
        return
    console.print(Text(_lines(title)))
    for row in rows:
        console.print(
            terminal((header[0], row[0]), list(zip(header[1:], row[1:], strict=True)), "")
        )
    console.print(Text(_lines(caption)))
