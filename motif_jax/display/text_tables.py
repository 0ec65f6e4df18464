"""Formats tables as Markdown, as LaTeX and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from motif_jax.core.errors import printable

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': "''",
        "\n": " ",
    }
)


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
        escaped = (markdown_escape(cell.replace("\\", "\\\\").replace("|", "\\|")) for cell in cells)
        return "| " + " | ".join(escaped) + " |"

    return "\n".join([line(header), "|" + " --- |" * len(header), *(line(row) for row in rows)]) + "\n"


def latex(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str, label: str) -> str:
    """A LaTeX table (packages booktabs, graphicx): first column left, others right, no wider than the line."""

    def line(cells: Sequence[str]) -> str:
        # LaTeX would read a bracket at the start of a row as an argument of the row end before it.
        escaped = [("{}" if cell.startswith(("[", "*")) else "") + cell.translate(_LATEX) for cell in cells]
        return " & ".join(escaped) + r" \\"

    body = "".join(f"    {line(row)}\n" for row in rows)
    return rf"""% \usepackage{{booktabs,graphicx}}
\begin{{table}}[t]
  \centering
  \caption{{{caption.translate(_LATEX)}}}
  \label{{{label}}}
  \resizebox{{\ifdim\width>\linewidth\linewidth\else\width\fi}}{{!}}{{%
  \begin{{tabular}}{{l{"r" * (len(header) - 1)}}}
    \toprule
    {line(header)}
    \midrule
{body}    \bottomrule
  \end{{tabular}}}}
\end{{table}}
"""


def terminal(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str,
    caption: str = "",
    text_first: bool = False,
) -> Table:
    """A rich table, at most as wide as the terminal if the longest words fit; markup in cells is not interpreted.

    With `text_first` the first column wraps, else the others do, an interval '[a, b]' below its value.
    """
    header, rows = list(map(_lines, header)), [[_lines(cell, not text_first) for cell in row] for row in rows]
    below = Text(_lines(caption)) if caption else None
    table = Table(title=Text(_lines(title)), caption=below, title_justify="left")
    least, most = _bounds(header, rows, text_first)
    spare = Console().width - 3 * len(header) - 1 - sum(least)  # borders and margins
    # Those that lack least come first: they need not wrap then.
    for column in sorted(range(len(header)), key=lambda column: most[column] - least[column]):
        more = max(0, min(most[column] - least[column], spare))
        least[column], spare = least[column] + more, spare - more
    for column, name in enumerate(header):
        justify: JustifyMethod = "right" if column else "left"
        table.add_column(Text(name), justify=justify, overflow="fold", width=least[column])
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _lines(text: str, intervals: bool = False) -> str:
    """What a cell shows; with `intervals` each '[a, b]' is on a line of its own."""
    return "\n".join(map(printable, (text.replace(" [", "\n[") if intervals else text).split("\n")))


def _bounds(
    header: Sequence[str], rows: Sequence[Sequence[str]], text_first: bool
) -> tuple[list[int], list[int]]:
    """The least and the largest useful width of each column: the longest word where it wraps, and the longest line of its cells."""
    least, most = [], []
    for column, (name, *cells) in enumerate(zip(header, *rows, strict=True)):
        lines = [line for cell in cells for line in cell.split("\n")]
        wraps = (column == 0) == text_first
        words = [word for text in (name, *(lines if wraps else ())) for word in text.split()]
        longest = min(24, max(map(cell_len, words), default=0))
        most.append(max([longest, *map(cell_len, lines)]))
        least.append(longest if wraps else most[-1])
    return least, most


def show(header: Sequence[str], rows: Sequence[Sequence[str]], title: str, caption: str = "") -> None:
    """Prints a table; where its columns do not fit the terminal, each row is a table of its own."""
    console, table = Console(), terminal(header, rows, title, caption)
    if sum((column.width or 0) + 3 for column in table.columns) + 1 <= console.width:
        console.print(table)
        return
    console.print(title, markup=False)
    for row in rows:
        console.print(terminal((header[0], row[0]), list(zip(header[1:], row[1:], strict=True)), ""))
    console.print(caption, markup=False)
