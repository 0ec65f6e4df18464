"""Writes the charts of reports as PNG and PDF files, for papers and slides."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path

from motif_jax.core.files import atomic_write_bytes
from motif_jax.display import glyphs
from motif_jax.display.charts import Plot, picture

_LONGEST_STEM = 100  # characters of a file name


def draw(plot: Plot) -> dict[str, bytes]:
    """The picture as {'png': bytes, 'pdf': bytes}; letters that its font lacks are escaped."""
    figure = picture(_drawable(plot), alone=True)
    pictures = {}
    for suffix in ("png", "pdf"):
        buffer = io.BytesIO()
        # Without dates two runs write equal bytes.
        metadata = {"CreationDate": None} if suffix == "pdf" else None
        figure.savefig(buffer, format=suffix, dpi=200, metadata=metadata)
        pictures[suffix] = buffer.getvalue()
    return pictures


def _drawable(plot: Plot) -> Plot:
    from matplotlib import font_manager

    font_file = font_manager.findfont(font_manager.FontProperties())

    def shown(text: str) -> str:
        return glyphs.drawable(text, font_file)

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
        for suffix, content in draw(plot).items():
            path = Path(folder) / f"{stem}.{suffix}"
            atomic_write_bytes(path, content)
            paths.append(path)
    return paths
