"""Trains several methods with several seeds, plays games with each, and keeps what came out as lines of a file."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from motif_jax.labels.lexicon import load_lexicon
from motif_jax.reports import study, study_curves
from motif_jax.reports.claims import Claim, parsed_claims
from motif_jax.support import config as checks
from motif_jax.support import interruption, resources, run_folder
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_json, atomic_write_text, read_json
from motif_jax.support.lifeline import told_of_parents_end
from motif_jax.support.locks import FolderLock

# What an earlier study, killed, has left running saves and ends within this time.
_FREE_SECONDS = 120.0
_DONE = "done.json"
# Of a claim that the lines do not carry.
NOT_CARRIED = 1
_AWAY = "move it away, or give the study another --workdir"


class Run(NamedTuple):
    """A method with a seed, and the flags that make it, in which the study's folder stands by its name."""

    method: str
    seed: int
    flags: str

    @property
    def folder(self) -> str:
        """Its name in the study's folder."""
        return f"{self.method}-{self.seed}"


class _Step(NamedTuple):
    """A stage that a run needs: its flags, its folder, and the one that {run} stands for in the flags."""

    name: str
    flags: str
    folder: Path
    run: Path


def check(config: ConfigDict, workdir: Path) -> None:
    """Raises UserError for values that cannot work; the flags of all runs are looked at before the first one begins."""
    run_folder.check_identity(workdir, config, ("stage",))
    checks.choice(config, "goal", load_lexicon(config.lexicon.file).goals)
    tables = {title: _listed(_table(config, title)) for title in _listed(config.table_order)}
    for title, listed in tables.items():
        for name in listed:
            allowed = f"of methods: {', '.join(config.methods)}"
            checks.require(name in config.methods, f"tables.{title}", name, allowed)
    names = {name for listed in tables.values() for name in listed}
    for name in _listed(config.only):
        checks.require(name in names, "only", name, f"of {', '.join(sorted(names))}")
    for name in _listed(config.measures):
        checks.require(name in study.MEASURES, "measures", name, f"of {', '.join(study.MEASURES)}")
    for claim in _claims(config):
        checks.require(
            claim.measure in study.MEASURES, "claims", claim.measure, f"of {', '.join(study.MEASURES)}"
        )
    for name in config.get("games", {}):
        checks.require(name in config.methods, "games", name, f"of methods: {', '.join(config.methods)}")
    for title, measure in config.curves.items():
        checks.require(title in tables, "curves", title, f"of table_order: {', '.join(tables)}")
        checks.require(
            measure in study_curves.MEASURES,
            f"curves.{title}",
            measure,
            f"of {', '.join(study_curves.MEASURES)}",
        )
    for name in _listed(config.prepare_order):
        checks.require(name in config.prepare, "prepare_order", name, f"of {', '.join(config.prepare)}")
    for key in ("training", "evaluation", *(f"prepare.{name}" for name in _listed(config.prepare_order))):
        flags = checks.dotted(config, key)
        file = (flags.split() or [""])[0].partition(":")[0]
        allowed = "a config file and its flags"
        checks.require(bool(file) and resources.path(file).is_file(), key, flags, allowed)
    checks.require(bool(config.rows), "rows", config.rows, "a file of lines, one a run")
    if config.page:
        study.check_page(Path(config.page))
    study.read_rows(_rows(config, workdir))


def _table(config: ConfigDict, title: str) -> str:
    checks.require(title in config.tables, "table_order", title, f"of tables: {', '.join(config.tables)}")
    return str(config.tables[title])


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _claims(config: ConfigDict) -> list[Claim]:
    return parsed_claims(config.get("claims", ""), list(config.methods))


def _rows(config: ConfigDict, workdir: Path) -> Path:
    return Path(config.rows.replace("{workdir}", str(workdir)))


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Makes the runs that have no line yet, `most_runs` at most, one after the other; returns 75 when it was asked to stop, 1 where
    the lines do not carry a claim."""
    with FolderLock(workdir), interruption.Interruption() as stop:
        run_folder.prepare(workdir, config, ("stage",))
        return _Study(config, workdir, stop).run()


def runs(config: ConfigDict) -> list[Run]:
    """The runs that are to be made, in that order."""
    chosen = set(_listed(config.only))
    return [one for one in all_runs(config) if not chosen or one.method in chosen]


def all_runs(config: ConfigDict) -> list[Run]:
    """All runs of the study's tables, whatever part of them is to be made here."""
    methods = dict.fromkeys(
        name for title in _listed(config.table_order) for name in _listed(config.tables[title])
    )
    return [
        Run(method, seed, f"{config.training} {config.methods[method]}")
        for seed in range(config.seed, config.seed + config.seeds)
        for method in methods
    ]


class _Study:
    def __init__(self, config: ConfigDict, workdir: Path, stop: interruption.Interruption) -> None:
        self._config, self._workdir, self._stop = config, workdir, stop
        self._rows = _rows(config, workdir)
        self._most: int | None = config.most_runs
        self._lexicon = load_lexicon(config.lexicon.file)
        self._by = study.Yardstick(config.goal, self._lexicon.digest)

    def run(self) -> int | None:
        planned = runs(self._config)
        self._valid()
        self._put_back(planned)
        self._see_what_is_done(planned)
        self._see_whether_flags_are_any(planned)
        seconds: list[float] = []
        for number, one in enumerate(planned, 1):
            if not self._without_line([one]):
                continue
            if self._most is not None and len(seconds) >= self._most:
                break
            more = len(self._without_line(planned[number - 1 :])[: self._most and self._most - len(seconds)])
            left = "" if not seconds else f", about {_hours(seconds, more)} left"
            print(f"== run {number} of {len(planned)}: {one.method}, seed {one.seed}{left}", file=sys.stderr)
            begin = time.monotonic()
            if not self._make(one):
                return interruption.EXIT_CODE
            seconds.append(time.monotonic() - begin)
            self._write()
        return NOT_CARRIED if self._write(show=True) else None

    def _put_back(self, planned: list[Run]) -> None:
        """Takes up what a killed study was about to remove: runs whose line is there go, the others' folders come back."""
        for one in planned:
            going = self._going(one)
            if not going.exists():
                continue
            if self._without_line([one]):
                going.rename(self._workdir / one.folder)
            else:
                shutil.rmtree(going)

    def _going(self, one: Run) -> Path:
        """The name of a run's folder from when its line is about to be written until it is removed."""
        return self._workdir / f".removed-{one.folder}"

    def _without_line(self, planned: list[Run]) -> list[Run]:
        rows = study.read_rows(self._rows)
        return [one for one in planned if self._line(rows, one) is None]

    def _line(self, rows: Sequence[Mapping[str, Any]], one: Run) -> Mapping[str, Any] | None:
        """The line of a run, judged as it is to be judged now."""
        return study.find(rows, one.method, one.seed, self._key(one), self._by)

    def _key(self, one: Run) -> str:
        """What makes a line the one of a run: its flags, those of the games, and how the reward was prepared."""
        config = self._config
        used = [config.prepare[name] for name in self._needed(one)]
        return " | ".join([one.flags, self._evaluation(one), *used])

    def _evaluation(self, one: Run) -> str:
        """The flags of a run's games."""
        own = self._config.get("games", {}).get(one.method, "")
        return f"{self._config.evaluation} {own}".strip()

    def _needed(self, one: Run) -> list[str]:
        order = _listed(self._config.prepare_order)
        last = max(
            (place for place, name in enumerate(order) if f"{{workdir}}/{name}" in one.flags), default=-1
        )
        return order[: last + 1]

    def _steps(self, one: Run) -> list[_Step]:
        folder = self._workdir / one.folder
        places = [(name, self._workdir / name) for name in self._needed(one)]
        games = f"{self._evaluation(one)} --config.agent.dir={{run}}"
        return [
            *(_Step(name, self._config.prepare[name], place, place) for name, place in places),
            _Step("training", f"{one.flags} --config.seed={one.seed}", folder, folder),
            _Step("games", games, folder / "games", folder),
        ]

    def _see_what_is_done(self, planned: list[Run]) -> None:
        """Raises UserError where a kept folder was made by other flags."""
        for one in self._without_line(planned):
            missing = None
            for step in self._steps(one):
                made = _made_by(step.folder)
                if made is None:
                    missing = missing or step.folder
                elif made != step.flags:
                    raise UserError(
                        f"{step.folder} was made by {made}, and is now to be made by {step.flags}: {_AWAY}"
                    )
                elif missing is not None:
                    raise UserError(
                        f"{step.folder} is there without {missing}, of which it was made: {_AWAY}"
                    )

    def _see_whether_flags_are_any(self, planned: list[Run]) -> None:
        """Raises UserError where a program would refuse its flags, which else would be told days later."""
        if self._most == 0:
            return
        first = {one.method: one for one in reversed(self._without_line(planned))}
        steps = {step.flags: step for one in first.values() for step in self._steps(one)}
        for step in steps.values():
            command = [*self._command(step), "--print_config"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                said = (done.stderr.strip().splitlines() or ["no word"])[-1]
                raise UserError(f"{said.removeprefix('error: ')} (of the study's {step.flags})")

    def _make(self, one: Run) -> bool:
        folder = self._workdir / one.folder
        seconds = {}
        for step in self._steps(one):
            begin = time.monotonic()
            if not self._stage(step):
                return False
            seconds[step.name] = round(time.monotonic() - begin, 1)
        seconds = {name: seconds[name] for name in ("training", "games")}
        row = study.measure(folder, folder / "games", self._lexicon, self._by.goal)
        line = {
            "method": one.method,
            "seed": one.seed,
            "flags": self._key(one),
            **self._by._asdict(),
            **row,
        }
        line[study_curves.KEY] = study_curves.of_run(folder)
        if not self._config.keep_runs:
            folder.rename(self._going(one))
        study.append_row(self._rows, {**line, "revision": run_folder.git_revision(), "seconds": seconds})
        if not self._config.keep_runs:
            shutil.rmtree(self._going(one))
        return True

    def _stage(self, step: _Step) -> bool:
        """Runs a stage unless it is done; False when it was asked to stop."""
        if _made_by(step.folder) is not None:
            return True
        if self._stop.requested:
            return False
        command = self._command(step)
        _wait_until_free(step.folder)
        with interruption.deaf_processes():
            process = subprocess.Popen(command, preexec_fn=told_of_parents_end)
        code = _wait(process, self._stop)
        if self._stop.requested:
            return False
        if code != 0:
            raise UserError(f"this run of the study ended with exit code {code}: {shlex.join(command)}")
        atomic_write_json(step.folder / _DONE, {"flags": step.flags})
        return True

    def _command(self, step: _Step) -> list[str]:
        # The folders that stand in the flags may have blanks in them, and the flags other braces, as JSON has them.
        places = {"{workdir}": str(self._workdir), "{run}": str(step.run)}
        words = [
            re.sub(r"\{(workdir|run)\}", lambda found: places[found[0]], word) for word in step.flags.split()
        ]
        program = [sys.executable, "-m", "motif_jax.launch"]
        return [*program, f"--config={words[0]}", f"--workdir={step.folder}", *words[1:]]

    def _write(self, show: bool = False) -> list[Claim]:
        """Writes the tables of what there is, and shows them where asked; returns the claims that the lines do not carry."""
        config, valid, tables = self._config, self._valid(), self._tables()
        text = study.tables(valid, tables, config.seeds, config.resamples, _listed(config.measures))
        claims, missed = study.claims(valid, _claims(config), config.resamples)
        shown = [claims] if _claims(config) else []
        text = "\n\n".join([text, *shown, *self._pictures(valid, tables)])
        if config.page:
            study.write_page(Path(config.page), text)
        else:
            atomic_write_text(self._workdir / "tables.md", text)
        if show:
            print(text)
        return missed

    def _tables(self) -> dict[str, list[str]]:
        return {title: _listed(self._config.tables[title]) for title in _listed(self._config.table_order)}

    def _valid(self) -> list[Mapping[str, Any]]:
        """The lines of the study's runs; UserError where those of a table cannot stand in it together."""
        rows = study.read_rows(self._rows)
        lines = [self._line(rows, one) for one in all_runs(self._config)]
        valid = [line for line in lines if line is not None]
        for methods in self._tables().values():
            study.require_same_games(valid, methods)
        return valid

    def _pictures(self, rows: Sequence[Mapping[str, Any]], tables: Mapping[str, Sequence[str]]) -> list[str]:
        """Draws the curves that there are; returns a line of Markdown for each picture."""
        page = Path(self._config.page) if self._config.page else self._workdir / "tables.md"
        shown = []
        for title, measure in self._config.curves.items():
            if (picture := study_curves.plot(rows, tables[title], measure)) is not None:
                path = page.parent / "images" / f"{page.stem}_{title}.png"
                study_curves.write(path, picture)
                what = f"{study_curves.MEASURES[measure]} over the steps of the training"
                shown.append(f"![{title.replace('_', ' ')}: {what}](images/{path.name})")
        return shown


def _made_by(folder: Path) -> str | None:
    """The flags of the stage that is done in `folder`."""
    path = folder / _DONE
    if not path.is_file():
        return None
    return str(read_json(path, "remove it, and the stage continues where it was", keys=("flags",))["flags"])


def _hours(seconds: list[float], runs: int) -> str:
    return f"{sum(seconds) / len(seconds) * runs / 3600:.1f} h"


def _wait(process: subprocess.Popen, stop: interruption.Interruption) -> int:
    ended = False
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0.5)
        if stop.requested and not ended:
            process.terminate()
            ended = True


def _wait_until_free(folder: Path) -> None:
    """Returns when no process works in `folder`; what a killed study has left there is saving."""
    deadline = time.monotonic() + _FREE_SECONDS
    while folder.is_dir():
        try:
            with FolderLock(folder):
                return
        except UserError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
