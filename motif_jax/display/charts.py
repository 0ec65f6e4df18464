"""Draws charts with matplotlib: as SVG inside a page, and as PNG and PDF files for papers and
slides.
"""

from __future__ import annotations

import io
import math
import os
import re
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from motif_jax.core.errors import printable
from motif_jax.core.files import atomic_write_bytes
from motif_jax.display import html

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinct in print and to colour-blind readers (Okabe and Ito 2008), dark enough on white.
COLOURS = ("#0b5fa5", "#c2570c", "#0f7b63", "#8a3fb0", "#a8246a", "#5c6b1a")
# Of the first six lines, of the next six, and of six more, so that none of them are alike; dashes
# mean something else.
_STYLES = ("-", ":", "-.")
# Widths in characters.
_LONGEST_LABEL = 60
_NOTE_WIDTH = 120  # of a note's line, in small letters
_LONGEST_STEM = 100  # of a file name
_Y_LABEL_WIDTH = 30  # of the upright label that fits beside the axes
# Colours of a figure that follow the page's theme: variables of assets/page.css.
_THEME = {**{colour: f"var(--c{number})" for number, colour in enumerate(COLOURS)}, "#b0b0b0": "var(--soft)", "#000000": "var(--soft)"}  # fmt: skip
TITLE = "title:"  # prefix of a URL whose rest is shown as a tooltip


class Series(NamedTuple):
    """One line of a chart, [n] points; NaN in `y` leaves a gap. `low` and `high` are a band, with
    `bars` a bar at each point.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    dashed: bool = False
    bars: bool = False


class Interval(NamedTuple):
    """One row of an interval chart: a value with its confidence interval, whose bounds may be
    NaN.
    """

    name: str
    value: float
    low: float
    high: float
    colour: int = 0


class Plot(NamedTuple):
    """One chart: lines over x, or intervals by name. `note` stands below it; without `file` only
    the page shows it.

    `method` says how values were averaged, below the chart as a file; a page says it once for all
    of its charts.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Series] = ()
    intervals: Sequence[Interval] = ()
    note: str = ""
    file: str = ""
    method: str = ""

    @property
    def constant(self) -> bool:
        """Whether there are lines, and each has one value all the way."""
        spans = [
            np.ptp(line.y[np.isfinite(line.y)]) for line in self.lines if np.isfinite(line.y).any()
        ]
        return bool(spans) and max(spans) == 0

    @property
    def drawable(self) -> bool:
        return bool(self.intervals) or any(np.isfinite(line.y).any() for line in self.lines)


def short(value: float) -> str:
    """Returns `value` in few characters: 1.5k, 20M, 0.03."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.4g}{letter}"
    return f"{value:.4g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.1e}"


def plain(text: str) -> str:
    """`text` as matplotlib draws it literally: one line, no formulas, and no leading _, which would
    keep it from a legend.
    """
    text = printable(text.replace("\n", " ").replace("\t", " "))
    shown = text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 3]}..."
    if shown.startswith("_"):
        shown = f" {shown[1:]}"
    return shown.replace("$", r"\$")


def new_figure(x_label: str, y_label: str, height: float = 2.8) -> tuple[Figure, Axes]:
    """An empty figure of `height` inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Without pyplot, which chooses a backend and keeps each figure until it is closed.
    figure = Figure(figsize=(4.8, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.locator_params(axis="x", nbins=6)
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.set_xlabel(plain(x_label))
    # A long one would run up into the legend.
    axes.set_ylabel(textwrap.fill(plain(y_label), _Y_LABEL_WIDTH))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def picture(plot: Plot, alone: bool = False) -> Figure:
    """Draws a plot with its legend above the axes; with `alone` the picture also has the title and
    the note.
    """
    lines = [line for line in plot.lines if np.isfinite(line.y).any()]
    name_lengths = [len(line.name) for line in lines if line.name]
    columns = 2 if max(name_lengths, default=0) < _LONGEST_LABEL // 2 else 1
    legend_rows = math.ceil(len(name_lengths) / columns)
    height = 1.0 + 0.38 * len(plot.intervals) if plot.intervals else 2.8
    # The legend stands above the axes, which keep their height.
    figure, axes = new_figure(plot.x_label, plot.y_label, height + 0.2 * legend_rows)

    for number, line in enumerate(lines):
        _draw_line(axes, line, number)
    for row, interval in enumerate(plot.intervals):
        _draw_interval(axes, interval, row)
    if plot.intervals:
        axes.set_yticks(
            range(len(plot.intervals)), [plain(interval.name) for interval in plot.intervals]
        )
        # From high to low: the first interval stands on top.
        axes.set_ylim(len(plot.intervals) - 0.4, -0.6)

    if alone:
        axes.set_title(plain(plot.title), fontsize="medium")
        note = "; ".join(filter(None, [plot.note, plot.method]))
        wrapped = textwrap.fill(note, _NOTE_WIDTH).replace("$", r"\$")
        figure.supxlabel(
            wrapped, fontsize=5, color="0.35", x=0.01, ha="left", multialignment="left"
        )
    if name_lengths:
        figure.legend(loc="outside upper left", ncols=columns, frameon=False, fontsize="small")
    return figure


def _draw_line(axes: Axes, line: Series, number: int) -> None:
    colour = COLOURS[number % len(COLOURS)]
    # A line of one point has no length.
    marker = "o" if np.isfinite(line.y).sum() == 1 else None
    style = "--" if line.dashed else _STYLES[number // len(COLOURS) % len(_STYLES)]
    label = plain(line.name) or None
    axes.plot(line.x, line.y, style, marker=marker, color=colour, linewidth=1.6, label=label)
    if line.low is None or line.high is None:
        return
    if line.bars:
        spread = np.maximum(0.0, [line.y - line.low, line.high - line.y])
        axes.errorbar(line.x, line.y, spread, fmt="none", ecolor=colour, elinewidth=2, alpha=0.6)
    else:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.2, linewidth=0)


def _draw_interval(axes: Axes, interval: Interval, row: int) -> None:
    has_bounds = np.isfinite([interval.low, interval.high]).all()
    spread = None
    bounds = "n/a"
    if has_bounds:
        spread = [[interval.value - interval.low], [interval.high - interval.value]]
        bounds = f"{interval.low:.4g}, {interval.high:.4g}"
    colour = COLOURS[interval.colour % len(COLOURS)]
    dot, *_ = axes.errorbar([interval.value], [row], xerr=spread, fmt="o", color=colour, capsize=4, linewidth=2)  # fmt: skip
    set_title(dot, f"{interval.name}: {interval.value:.4g} [{bounds}]")


def set_title(artist: Artist, text: str) -> None:
    """Gives a part of an inline chart the tooltip `text`."""
    artist.set_url(TITLE + text)


def inline(figure: Figure, description: str) -> str:
    """The figure as SVG inside a page, in the page's colours; `description` is read out by screen
    readers.
    """
    import matplotlib

    buffer = io.StringIO()
    # Text stays text in the reader's font, which has more glyphs than matplotlib's. Without dates
    # two runs write equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": description}), warnings.catch_warnings():  # fmt: skip
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    head = re.search(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', svg)
    assert head is not None
    # The style would apply to the whole page.
    body = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>", "", svg[head.end() :], flags=re.DOTALL
    )
    # Every chart has the same group ids, but ids of markers and clips differ: they are hashed with
    # the description.
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    body = re.sub(r"#[0-9a-f]{6}(?=[;\"])", lambda colour: _THEME.get(colour[0], colour[0]), body)
    # What `set_title` gave as a URL is a link in the SVG: a tooltip takes its place.
    body = re.sub(rf'<a xlink:href="{TITLE}([^"]*)"[^>]*>', r"<g><title>\1</title>", body)
    body = body.replace("</a>", "</g>")
    namespace = 'xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg class="chart" {namespace} viewBox="{head[1]}" role="img" aria-label="{escape(description)}">{body.strip()}'


def figure(plot: Plot) -> str:
    """The chart in a page, with its title and note."""
    description = f"{plot.title} ({plot.y_label})"
    chart = (
        inline(picture(plot), description)
        if plot.drawable
        else html.nothing("no data were written")
    )
    return html.figure(plot.title, chart, plot.note)


def pictures(plot: Plot) -> dict[str, bytes]:
    """The picture as {'png': bytes, 'pdf': bytes}; letters that its font lacks are escaped."""
    figure = picture(_with_drawable_texts(plot), alone=True)
    contents = {}
    for suffix in ("png", "pdf"):
        buffer = io.BytesIO()
        # Without dates two runs write equal bytes.
        metadata = {"CreationDate": None} if suffix == "pdf" else None
        figure.savefig(buffer, format=suffix, dpi=200, metadata=metadata)
        contents[suffix] = buffer.getvalue()
    return contents


def _with_drawable_texts(plot: Plot) -> Plot:
    from matplotlib import font_manager

    font_file = font_manager.findfont(font_manager.FontProperties())

    def shown(text: str) -> str:
        return drawable(text, font_file)

    return plot._replace(
        title=shown(plot.title),
        x_label=shown(plot.x_label),
        y_label=shown(plot.y_label),
        lines=[line._replace(name=shown(line.name)) for line in plot.lines],
        intervals=[interval._replace(name=shown(interval.name)) for interval in plot.intervals],
        note=shown(plot.note),
        method=shown(plot.method),
    )


def file_stem(name: str) -> str:
    """A safe file name made from `name`, which may come from an untrusted file."""
    stem = re.sub(r"[^A-Za-z0-9._+-]+", "_", name).lstrip(".")
    return stem[:_LONGEST_STEM] or "_"


def write(folder: str | os.PathLike[str], plots: Mapping[str, Plot]) -> list[Path]:
    """Writes folder/NAME.png and folder/NAME.pdf for each plot (names by `file_stem`); returns the
    paths.
    """
    paths = []
    taken: set[str] = set()
    for name, plot in plots.items():
        stem = file_stem(name)
        number = 2
        # Different names may have equal stems, and some file systems do not tell capitals apart.
        while stem.lower() in taken:
            stem = f"{file_stem(name)}-{number}"
            number += 1
        taken.add(stem.lower())
        for suffix, content in pictures(plot).items():
            path = Path(folder) / f"{stem}.{suffix}"
            atomic_write_bytes(path, content)
            paths.append(path)
    return paths


@lru_cache(maxsize=4)
def _letters(font_file: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(font_file).get_charmap())


def drawable(text: str, font_file: str) -> str:
    """`text` with escapes for the letters that the font lacks, which would all be the same empty
    box.
    """
    letters = _letters(font_file)
    return "".join(
        letter
        if letter.isascii() or ord(letter) in letters
        else letter.encode("unicode_escape").decode()
        for letter in text
    )
