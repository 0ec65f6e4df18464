"""Writes each film once, in the configured formats."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from motif_jax.core import config as checks
from motif_jax.core import sections
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_bytes, atomic_write_json, read_json
from motif_jax.envs import registry
from motif_jax.play.films import movie, player, ttyrec
from motif_jax.play.watching import Film

LEDGER = "films.json"
_REMEDY = "remove it, then the films are made again"


class FilmForms(sections.Forms):
    """Formats of films; a GIF shows every `every`-th of the steps [start, stop) and each rewarded one."""

    def check(self) -> None:
        if self.stop is not None:
            checks.require(self.stop > self.start, "forms.stop", self.stop, f"above start={self.start}")

    def check_screen(self, task: str, options: Mapping[str, Any]) -> None:
        seen = registry.spec(task, **options).renderer is not None
        allowed = f"off: {task} has no screen to make a movie of"
        checks.require(not self.gif or seen, "forms.gif", True, allowed)


class Films:
    """The films of a stage, which resumes after the last complete one; films.json in `workdir` records their sources."""

    def __init__(self, workdir: Path, folder: Path, forms: FilmForms) -> None:
        self._path, self._folder, self._forms = workdir / LEDGER, folder, forms
        self._made: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            self._made = read_json(self._path, _REMEDY)
            known = {"source", "files", "steps"}
            if not all(isinstance(made, dict) and known <= set(made) for made in self._made.values()):
                raise UserError(f"{self._path} is damaged (no list of films): {_REMEDY}")
        self._longest = self._movies = 0

    def _source(self, source: Any) -> str:
        text = json.dumps([source, asdict(self._forms)], sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def has(self, stem: str, source: Any) -> bool:
        """Whether the film `stem` exists, made from `source` (JSON-able) in these formats."""
        made = self._made.get(stem)
        if made is None or made["source"] != self._source(source):
            return False
        there = all((self._folder / name).exists() for name in made["files"])
        if there:
            self._count(made)
        return there

    def write(self, stem: str, film: Film, source: Any = None) -> list[Path]:
        """Writes `film` as STEM.html and so on; returns the paths. Without a `source` it is written again on resume."""
        forms, paths = self._forms, []
        rate = forms.frames_per_second
        steps = movie.chosen_steps(film, forms.start, forms.stop, forms.every)
        makers: dict[str, tuple[bool, Callable[[], bytes]]] = {
            ".html": (forms.html, lambda: player.render(film).encode()),
            ttyrec.SUFFIX: (forms.ttyrec and bool(film.chars.size), lambda: ttyrec.encode(film, rate)),
            ".gif": (forms.gif and bool(steps), lambda: movie.gif(film, steps, rate)),
        }
        for suffix, (wanted, make) in makers.items():
            if wanted:
                paths.append(self._folder / f"{stem}{suffix}")
                atomic_write_bytes(paths[-1], make())
        source = None if source is None else self._source(source)
        made = {"source": source, "files": [path.name for path in paths], "steps": len(film)}
        self._made[stem] = made
        atomic_write_json(self._path, self._made)
        self._count(made)
        return paths

    def _count(self, made: dict[str, Any]) -> None:
        self._longest = max(self._longest, made["steps"])
        self._movies += any(name.endswith(".gif") for name in made["files"])

    def check_movies(self) -> None:
        wanted = self._forms.gif and self._longest > 0
        allowed = f"below {self._longest}, the length of the longest of these episodes: there is no movie"
        checks.require(not wanted or self._movies > 0, "forms.start", self._forms.start, allowed)
