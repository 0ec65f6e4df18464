"""Writes films in the forms that are asked for."""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.reports import movie, player, ttyrec
from motif_jax.runtime.watch import Film
from motif_jax.support import config as checks
from motif_jax.support.files import atomic_write_text


def write(folder: Path, stem: str, film: Film, forms: ConfigDict) -> list[Path]:
    """Writes `film` as folder/STEM.html and so on; returns the paths.

    Args:
      folder: where to.
      stem: of the file names.
      film: the episode.
      forms: html, ttyrec, gif, mp4 (bool each), frames_per_second, start, stop, every (steps of gif and mp4).
    """
    written = []
    screen = bool(film.chars.size)
    if forms.html:
        written.append(folder / f"{stem}.html")
        atomic_write_text(written[-1], player.render(film))
    if forms.ttyrec and screen:
        written.append(folder / f"{stem}{ttyrec.SUFFIX}")
        ttyrec.write(written[-1], film, forms.frames_per_second)
    steps = movie.chosen_steps(film, forms.start, forms.stop, forms.every) if forms.gif or forms.mp4 else []
    if forms.gif:
        written.append(folder / f"{stem}.gif")
        movie.write(written[-1], movie.gif(film, steps, forms.frames_per_second))
    if forms.mp4:
        written.append(folder / f"{stem}.mp4")
        movie.write(written[-1], movie.mp4(film, steps, forms.frames_per_second))
    return written


def check(config: ConfigDict, section: str = "forms") -> None:
    """Raises UserError for values of the section that cannot work."""
    checks.positive(config, f"{section}.frames_per_second")
    checks.positive(config, f"{section}.every")
    checks.positive(config, f"{section}.start", allow_zero=True)
    forms = checks.dotted(config, section)
    if forms.stop is not None:
        checks.require(forms.stop > forms.start, f"{section}.stop", forms.stop, f"above start={forms.start}")
    if forms.mp4:
        checks.require(movie.has_ffmpeg(), f"{section}.mp4", True, "off: ffmpeg is not installed here")
