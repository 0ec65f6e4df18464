"""Tables as Markdown, LaTeX and on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from motif_jax.support.errors import printable

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "\n": " ",
}


def latex_escape(text: str) -> str:
    """Returns `text` so that LaTeX sets it as it is."""
    return "".join(_LATEX.get(character, character) for character in text)


def markdown_escape(text: str) -> str:
    """Returns `text` so that Markdown shows it as it is: no element of HTML, no link, in one line."""
    shown = printable(" ".join(text.split("\n")))
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace("](", "]\\(")


def csv_cell(text: str) -> str:
    """Returns `text` for a table that people open: what a spreadsheet would take for a formula has a ' before it."""
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
        # A bracket at the start of a row would be read as an argument of the end of the row before.
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
    """A rich table; cells are shown literally, markup in them is not interpreted.

    Args:
      header, rows: of the table; the first column stands left, the others right.
      text_first: the first column holds text of any length, which wraps; else the others do, an interval '[a, b]'
        below its value.
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
            # No narrower than its longest word, unless that alone fills a line.
            min_width=min(24, max(map(len, words), default=0)),
        )
    for row in rows:
        table.add_row(*(shown(cell if text_first else cell.replace(" [", "\n[")) for cell in row))
    return table
