"""Writes each film once: a player, a ttyrec where the task has a screen of text, a GIF if asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from motif_jax.core import config as checks
from motif_jax.core.files import atomic_write_bytes, atomic_write_json, read_json
from motif_jax.envs import registry
from motif_jax.play.config import Forms
from motif_jax.play.films import movie, player, ttyrec
from motif_jax.play.watching import Film

LEDGER = "films.json"
_REMEDY = "remove it, then the films are made again"


class FilmForms(Forms):
    """Formats of films; a GIF shows the steps [start, stop)."""

    def check(self) -> None:
        if self.stop is not None:
            checks.require(
                self.stop > self.start, "forms.stop", self.stop, f"above start={self.start}"
            )

    def check_screen(self, task: str, options: Mapping[str, Any]) -> None:
        has_screen = registry.spec(task, **options).renderer is not None
        allowed = f"off: {task} has no screen to make a movie of"
        checks.require(not self.gif or has_screen, "forms.gif", True, allowed)


class Films:
    """The films of a stage, which resumes after the last complete one; films.json in `workdir`
    records their sources.
    """

    def __init__(self, workdir: Path, folder: Path, forms: FilmForms) -> None:
        self._path = workdir / LEDGER
        self._folder = folder
        self._forms = forms
        # Stem -> digest of the source, names of files, steps.
        self._entries: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            self._entries = read_json(self._path, _REMEDY)

    def _digest(self, source: Any) -> str:
        # Other forms or settings of them make the film again.
        text = json.dumps([source, asdict(self._forms)], sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def has(self, stem: str, source: Any) -> bool:
        """Whether the film `stem` exists, made from `source` (JSON-able) in these formats."""
        entry = self._entries.get(stem)
        if entry is None or entry["source"] != self._digest(source):
            return False
        return all((self._folder / name).exists() for name in entry["files"])

    def write(self, stem: str, film: Film, source: Any = None) -> list[Path]:
        """Writes `film` as STEM.html and so on; returns the paths. Without a `source` it is written
        again on resume.
        """
        forms = self._forms
        rate = forms.frames_per_second
        stop = len(film) if forms.stop is None else min(forms.stop, len(film))
        steps = list(range(forms.start, stop))
        contents: dict[str, Callable[[], bytes]] = {".html": lambda: player.render(film).encode()}
        # The published tools write one, too.
        if film.chars.size:
            contents[ttyrec.SUFFIX] = lambda: ttyrec.encode(film, rate)
        if forms.gif and steps:
            contents[".gif"] = lambda: movie.gif(film, steps, rate)

        paths = []
        for suffix, content in contents.items():
            path = self._folder / f"{stem}{suffix}"
            atomic_write_bytes(path, content())
            paths.append(path)
        # After the files: an entry says that they are complete.
        entry = {
            "source": None if source is None else self._digest(source),
            "files": [path.name for path in paths],
            "steps": len(film),
        }
        self._entries[stem] = entry
        atomic_write_json(self._path, self._entries)
        return paths
