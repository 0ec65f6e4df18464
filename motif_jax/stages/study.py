"""Trains several methods with several seeds, plays games with each, and keeps the results as lines of a file."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from motif_jax.labels.lexicon import load_lexicon
from motif_jax.reports import study, study_curves
from motif_jax.reports.claims import Claim, parsed_claims
from motif_jax.support import config as checks
from motif_jax.support import interruption, run_folder
from motif_jax.support.config import listed
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_json, atomic_write_text, read_json
from motif_jax.support.locks import FolderLock
from motif_jax.support.parent_death import sigterm_on_parent_death

# What a killed study leaves running saves and ends within this time.
_FREE_SECONDS = 120.0
_DONE = "done.json"
# Exit code where the lines do not support a claim.
NOT_CARRIED = 1


class Run(NamedTuple):
    """A run of a method; {workdir} in its flags stands for the study's folder."""

    method: str
    seed: int
    folder: str
    flags: str


class _Step(NamedTuple):
    flags: str
    folder: Path
    run: Path


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for values that cannot work; the flags of all runs are checked before the first one starts."""
    run_folder.check_identity(workdir, config, ("stage",))
    checks.choice(config, "goal", load_lexicon(config.lexicon.file).goals)
    claimed = [claim.measure for claim in _claims(config)]
    titled = [(f"tables.{title}", listed(names), config.methods) for title, names in config.tables.items()]
    drawn = [(f"curves.{title}", [name], study_curves.MEASURES) for title, name in config.curves.items()]
    known = [
        ("table_order", listed(config.table_order), config.tables),
        *titled,
        ("only", listed(config.only), {name for _, names, _ in titled for name in names}),
        ("measures", listed(config.measures), study.MEASURES),
        ("claims", claimed, study.MEASURES),
        ("games", config.games, config.methods),
        ("curves", config.curves, config.tables),
        *drawn,
        ("prepare_order", listed(config.prepare_order), config.prepare),
    ]
    for key, names, allowed in known:
        for name in names:
            checks.require(name in allowed, key, name, f"of {', '.join(sorted(allowed))}")
    for key in ("training", "evaluation"):
        checks.require(bool(config[key].strip()), key, config[key], "a config file and its flags")
    good = bool(config.rows) and not _rows(config, workdir).is_dir()
    checks.require_key(config, "rows", good, "a file of lines, one a run")
    if config.page:
        study.check_page(Path(config.page))
    study.read_rows(_rows(config, workdir))


def _rows(config: ConfigDict, workdir: Path) -> Path:
    return Path(config.rows.replace("{workdir}", str(workdir)))


def _tables(config: ConfigDict) -> dict[str, list[str]]:
    return {title: listed(config.tables[title]) for title in listed(config.table_order)}


def _claims(config: ConfigDict) -> list[Claim]:
    return parsed_claims(config.claims, list(config.methods))


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Makes the runs without a line; returns 75 when asked to stop, 1 where the lines do not support a claim."""
    with interruption.Interruption() as stop, run_folder.opened(workdir, config, ("stage",)):
        return _Study(config, workdir, stop).run()


def runs(config: ConfigDict, only: str = "") -> list[Run]:
    """The runs of the study's tables, in order; only of the methods in `only`, if given."""
    methods = dict.fromkeys(name for of in _tables(config).values() for name in of)
    return [
        Run(method, seed, f"{method}-{seed}", f"{config.training} {config.methods[method]}")
        for seed in range(config.seed, config.seed + config.seeds)
        for method in methods
        if not only or method in listed(only)
    ]


class _Study:
    def __init__(self, config: ConfigDict, workdir: Path, stop: interruption.Interruption) -> None:
        self._config, self._workdir, self._stop = config, workdir, stop
        self._rows, self._lexicon = _rows(config, workdir), load_lexicon(config.lexicon.file)

    def run(self) -> int | None:
        planned = runs(self._config, self._config.only)
        self._valid()
        lines = dict(zip(planned, self._lines(planned), strict=True))
        for one, line in lines.items():
            if line is not None and not self._config.keep_runs:
                shutil.rmtree(self._workdir / one.folder, ignore_errors=True)  # left by a killed study
        missing = [one for one, line in lines.items() if line is None][: self._config.most_runs]
        self._check_flags(missing)
        start = time.monotonic()
        for number, one in enumerate(missing):
            hours = (time.monotonic() - start) / max(1, number) * (len(missing) - number) / 3600
            left = f", about {hours:.1f} h left" if number else ""
            print(f"== run {number + 1} of {len(missing)}: {one.folder}{left}", file=sys.stderr)
            # Another study may have added the line meanwhile.
            if self._lines([one]) == [None] and not self._make(one):
                return interruption.EXIT_CODE
            self._write()
        text, missed = self._write()
        print(text)
        return NOT_CARRIED if missed else None

    def _lines(self, planned: list[Run]) -> list[Mapping[str, Any] | None]:
        rows = study.read_rows(self._rows)
        return [study.find(rows, self._identity(one)) for one in planned]

    def _identity(self, one: Run) -> dict[str, Any]:
        prepared = (self._config.prepare[name] for name in self._needed(one))
        flags = [one.flags, self._evaluation(one), *prepared]
        judge = {"goal": self._config.goal, "lexicon": self._lexicon.digest}
        return {"method": one.method, "seed": one.seed, "flags": " | ".join(flags), **judge}

    def _evaluation(self, one: Run) -> str:
        return f"{self._config.evaluation} {self._config.games.get(one.method, '')}".strip()

    def _needed(self, one: Run) -> list[str]:
        order = listed(self._config.prepare_order)
        used = [number for number, name in enumerate(order) if f"{{workdir}}/{name}" in one.flags]
        return order[: max(used, default=-1) + 1]

    def _steps(self, one: Run) -> list[_Step]:
        folder = self._workdir / one.folder
        places = [(name, self._workdir / name) for name in self._needed(one)]
        games = f"{self._evaluation(one)} --config.agent.dir={{run}}"
        return [
            *(_Step(self._config.prepare[name], place, place) for name, place in places),
            _Step(f"{one.flags} --config.seed={one.seed}", folder, folder),
            _Step(games, folder / "games", folder),
        ]

    def _check_flags(self, planned: list[Run]) -> None:
        first = {one.method: one for one in reversed(planned)}
        for step in {step.flags: step for one in first.values() for step in self._steps(one)}.values():
            command = [*self._command(step), "--print_config"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
                raise UserError(f"{reason.removeprefix('error: ')} (of the study's {step.flags})")

    def _make(self, one: Run) -> bool:
        folder = self._workdir / one.folder
        seconds: list[float] = []
        for step in self._steps(one):
            begin = time.monotonic()
            if not self._stage(step):
                return False
            seconds.append(round(time.monotonic() - begin, 1))
        line = {
            **self._identity(one),
            **study.measure(folder, folder / "games", self._lexicon, self._config.goal),
            study_curves.KEY: study_curves.of_run(folder),
            "revision": run_folder.git_revision(),
            "seconds": dict(zip(("training", "games"), seconds[-2:], strict=True)),
        }
        study.append_row(self._rows, line)
        if not self._config.keep_runs:
            shutil.rmtree(folder)
        return True

    def _stage(self, step: _Step) -> bool:
        done = step.folder / _DONE
        remedy = "remove it, and the stage continues where it was"
        made = read_json(done, remedy, keys=("flags",))["flags"] if done.is_file() else None
        if made not in (None, step.flags):
            raise UserError(
                f"{step.folder} was made by {made}, and is now to be made by {step.flags}: move it away, or give the study another --workdir"
            )
        if made is not None or self._stop.requested:
            return made is not None
        command = self._command(step)
        with FolderLock(step.folder, patience=_FREE_SECONDS):  # what a killed study has left there is saving
            pass
        with interruption.deaf_processes():
            process = subprocess.Popen(command, preexec_fn=sigterm_on_parent_death)
        while process.poll() is None and not self._stop.requested:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        if self._stop.requested:
            process.terminate()
            process.wait()
            return False
        if code := process.returncode:
            raise UserError(f"this run of the study ended with exit code {code}: {shlex.join(command)}")
        atomic_write_json(done, {"flags": step.flags})
        return True

    def _command(self, step: _Step) -> list[str]:
        places = {"{workdir}": str(self._workdir), "{run}": str(step.run)}
        # Split before the folders are put in, which may hold blanks; other braces, as of JSON, stay.
        first, *words = (
            re.sub(r"\{(workdir|run)\}", lambda found: places[found[0]], word) for word in step.flags.split()
        )
        program = [sys.executable, "-m", "motif_jax.launch"]
        return [*program, f"--config={first}", f"--workdir={step.folder}", *words]

    def _write(self) -> tuple[str, list[Claim]]:
        config, valid, tables = self._config, self._valid(), _tables(self._config)
        size = config.seeds, config.resamples, listed(config.measures)
        shown = [study.table_text(valid, title, methods, *size) for title, methods in tables.items()]
        claims, missed = study.claims(valid, _claims(config), config.resamples)
        page = Path(config.page or self._workdir / "tables.md")
        curves = {title: (tables[title], measure) for title, measure in config.curves.items()}
        pictures = study_curves.write(page, valid, curves)
        text = "\n\n".join([*shown, *([claims] if config.claims else []), *pictures])
        (study.write_page if config.page else atomic_write_text)(page, text)
        return text, missed

    def _valid(self) -> list[Mapping[str, Any]]:
        valid = [line for line in self._lines(runs(self._config)) if line is not None]
        for methods in _tables(self._config).values():
            study.require_same_games(valid, methods)
        return valid
