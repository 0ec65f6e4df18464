"""Writes films in the forms that are asked for, each once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.envs import registry
from motif_jax.reports import movie, player, ttyrec
from motif_jax.rollouts.watching import Film
from motif_jax.support import config as checks
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_bytes, atomic_write_json, read_json

LEDGER = "films.json"
_REMEDY = "remove it, and the films are made again"


class Films:
    """The films that a stage makes: one that is started again continues behind the last whole one.

    Args:
      workdir: remembers in films.json what every film was made from.
      forms: html, ttyrec, gif, mp4 (bool each), frames_per_second, start, stop, every (steps of gif and mp4).
    """

    def __init__(self, workdir: Path, folder: Path, forms: ConfigDict) -> None:
        self._path, self._folder, self._forms = workdir / LEDGER, folder, forms
        self._made: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            self._made = read_json(self._path, _REMEDY)
            good = all(
                isinstance(m, dict) and {"source", "files", "steps"} <= set(m) for m in self._made.values()
            )
            if not good:
                raise UserError(f"{self._path} is damaged (no list of films): {_REMEDY}")
        self._longest = self._movies = 0

    def _source(self, source: Any) -> str:
        text = json.dumps([source, self._forms.to_dict()], sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def has(self, stem: str, source: Any) -> bool:
        """Whether the film `stem` is there, made from `source` (JSON-able) in these forms."""
        made = self._made.get(stem)
        if made is None or made["source"] != self._source(source):
            return False
        if not all((self._folder / name).exists() for name in made["files"]):
            return False
        self._count(made)
        return True

    def write(self, stem: str, film: Film, source: Any = None) -> list[Path]:
        """Writes `film` as STEM.html and so on; returns the paths.

        Without a `source` it is written again the next time. An episode that ends before `forms.start` has no movie.
        """
        paths = write(self._folder, stem, film, self._forms)
        made = {
            "source": None if source is None else self._source(source),
            "files": [path.name for path in paths],
            "steps": len(film),
        }
        self._made[stem] = made
        atomic_write_json(self._path, self._made)
        self._count(made)
        return paths

    def _count(self, made: dict[str, Any]) -> None:
        self._longest = max(self._longest, made["steps"])
        self._movies += any(name.endswith((".gif", ".mp4")) for name in made["files"])

    def check_movies(self) -> None:
        """Raises UserError when movies were asked for and every episode had ended before they were to begin."""
        wanted = (self._forms.gif or self._forms.mp4) and self._longest > 0
        if wanted and not self._movies:
            allowed = f"below {self._longest}, the length of the longest of these episodes: there is no movie"
            checks.require(False, "forms.start", self._forms.start, allowed)


def write(folder: Path, stem: str, film: Film, forms: ConfigDict) -> list[Path]:
    """Writes `film` as folder/STEM.html and so on, see `Films`; returns the paths."""
    rate, steps = forms.frames_per_second, movie.chosen_steps(film, forms.start, forms.stop, forms.every)
    makers: dict[str, tuple[bool, Callable[[], bytes]]] = {
        ".html": (forms.html, lambda: player.render(film).encode()),
        ttyrec.SUFFIX: (forms.ttyrec and bool(film.chars.size), lambda: ttyrec.encode(film, rate)),
        ".gif": (forms.gif and bool(steps), lambda: movie.gif(film, steps, rate)),
        ".mp4": (forms.mp4 and bool(steps), lambda: movie.mp4(film, steps, rate)),
    }
    written = []
    for suffix, (wanted, make) in makers.items():
        if wanted:
            written.append(folder / f"{stem}{suffix}")
            atomic_write_bytes(written[-1], make())
    return written


def check(config: ConfigDict, section: str = "forms") -> None:
    """Raises UserError for values of the section that cannot work."""
    forms = checks.dotted(config, section)
    if forms.stop is not None:
        checks.require(forms.stop > forms.start, f"{section}.stop", forms.stop, f"above start={forms.start}")
    if forms.mp4:
        checks.require(movie.has_ffmpeg(), f"{section}.mp4", True, "off: ffmpeg is not installed here")


def check_screen(config: ConfigDict, task: str, options: Mapping[str, Any], section: str = "forms") -> None:
    """Raises UserError when a movie is asked for of a task that nobody can see; `options` are the task's."""
    forms, seen = checks.dotted(config, section), registry.spec(task, **options).renderer is not None
    for form in ("gif", "mp4"):
        allowed = f"off: {task} has no screen to make a movie of"
        checks.require(not forms[form] or seen, f"{section}.{form}", True, allowed)
