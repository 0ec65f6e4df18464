"""Formats tables as Markdown, as LaTeX and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from motif_jax.support.errors import printable

_LATEX = {
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


def latex_escape(text: str) -> str:
    """Escapes `text` for LaTeX."""
    return "".join(_LATEX.get(character, character) for character in text)


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
        escaped = [("{}" if cell.startswith(("[", "*")) else "") + latex_escape(cell) for cell in cells]
        return " & ".join(escaped) + r" \\"

    return "\n".join(
        [
            r"% \usepackage{booktabs,graphicx}",
            r"\begin{table}[t]",
            r"  \centering",
            rf"  \caption{{{latex_escape(caption)}}}",
            rf"  \label{{{label}}}",
            r"  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"  \begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"    \toprule",
            "    " + line(header),
            r"    \midrule",
            *("    " + line(row) for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def terminal(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str,
    caption: str = "",
    text_first: bool = False,
) -> Table:
    """A rich table; the first column is left-aligned, the others right-aligned; markup in cells is not interpreted.

    Args:
      text_first: the first column holds long text, which wraps; else the others wrap, an interval '[a, b]' below its value.
    """

    def shown(text: str) -> Text:
        return Text("\n".join(map(printable, text.split("\n"))))

    table = Table(title=shown(title), caption=shown(caption) if caption else None, title_justify="left")
    for position, name in enumerate(header):
        first = position == 0
        words = [word for row in rows for word in row[position].split()] + name.split()
        table.add_column(
            shown(name),
            justify="left" if first else "right",
            no_wrap=first != text_first,
            overflow="fold",
            # At least as wide as its longest word, unless that fills a line.
            min_width=min(24, max(map(len, words), default=0)),
        )
    for row in rows:
        table.add_row(*(shown(cell if text_first else cell.replace(" [", "\n[")) for cell in row))
    return table


def show(header: Sequence[str], rows: Sequence[Sequence[str]], title: str, caption: str = "") -> None:
    """Prints a table; where its columns do not fit the terminal side by side, each row is a table of its own."""
    console = Console()
    table = terminal(header, rows, title, caption)
    if console.measure(table, options=console.options.update(width=10**4)).minimum <= console.width:
        console.print(table)
        return
    console.print(title, markup=False)
    for row in rows:
        console.print(terminal((header[0], row[0]), list(zip(header[1:], row[1:], strict=True)), ""))
    console.print(caption, markup=False)
