"""Writes the charts of reports as PNG and PDF files, for papers and slides."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path

from motif_jax.core.files import atomic_write_bytes
from motif_jax.display.charts import Plot, picture

_LONGEST_STEM = 100  # characters of a file name


def draw(plot: Plot) -> dict[str, bytes]:
    """The picture as {'png': bytes, 'pdf': bytes}."""
    figure, pictures = picture(plot, alone=True), {}
    for kind in ("png", "pdf"):
        buffer = io.BytesIO()
        # Without dates two runs write equal bytes.
        about = {"CreationDate": None} if kind == "pdf" else None
        figure.savefig(buffer, format=kind, dpi=200, metadata=about)
        pictures[kind] = buffer.getvalue()
    return pictures


def file_stem(name: str) -> str:
    """A safe file name made from `name`, which may come from an untrusted file."""
    stem = re.sub(r"[^A-Za-z0-9._+-]+", "_", name).lstrip(".")
    return stem[:_LONGEST_STEM] or "_"


def write(folder: str | os.PathLike[str], plots: Mapping[str, Plot]) -> list[Path]:
    """Writes folder/NAME.png and folder/NAME.pdf for each plot (names by `file_stem`); returns the paths."""
    paths, taken = [], set[str]()
    for name, plot in plots.items():
        stem, number = file_stem(name), 2
        while stem.lower() in taken:  # different names may have equal stems
            stem, number = f"{file_stem(name)}-{number}", number + 1
        taken.add(stem.lower())
        for kind, data in draw(plot).items():
            path = Path(folder) / f"{stem}.{kind}"
            atomic_write_bytes(path, data)
            paths.append(path)
    return paths
