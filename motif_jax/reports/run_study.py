"""Trains several methods with several seeds, plays games with each, and keeps the results as lines of a file."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import interruption, run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text, read_json_lines
from motif_jax.core.parent_death import sigterm_on_parent_death
from motif_jax.motif.annotation.lexicon import load_lexicon
from motif_jax.reports import study
from motif_jax.reports.claims import parsed_claims


class Run(NamedTuple):
    """What identifies the line of a run, and folder -> command of all that makes it; the last one plays the games."""

    identity: dict[str, Any]
    commands: dict[Path, tuple[str, ...]]


def check(config: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config, ("stage",))
    checks.choice(config, "goal", load_lexicon(config.lexicon.file).goals)
    parsed_claims(config.claims, list(config.methods))
    checks.require_key(config, "training", bool(config.training.split()), "a config file and its flags")
    listed = {f"tables.{title}": checks.listed(names) for title, names in config.tables.items()}
    listed["games"] = list(config.games)
    for key, names in listed.items():
        for name in names:
            checks.require(name in config.methods, key, name, f"of {', '.join(sorted(config.methods))}")
    whole = all(": " in part for part in config.prepare.split("; ") if part)
    checks.require_key(config, "prepare", whole, "'folder: command; folder: command; ...'")
    _results(config, workdir)


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Makes the runs without a line; returns 75 when asked to stop, 1 where the lines do not support a claim."""
    with interruption.Interruption() as stop, run_folder.opened(workdir, config, ("stage",)):
        (_, missing), lexicon = _results(config, workdir), load_lexicon(config.lexicon.file)
        _check_flags(missing)
        start = time.monotonic()
        text, carried = _tables(config, workdir)
        for number, one in enumerate(missing):
            hours = (time.monotonic() - start) / max(1, number) * (len(missing) - number) / 3600
            left, *_, games = f", about {hours:.1f} h left" if number else "", *one.commands
            print(f"== run {number + 1} of {len(missing)}: {games.parent.name}{left}", file=sys.stderr)
            if not all(_made(folder, command, stop) for folder, command in one.commands.items()):
                return interruption.EXIT_CODE
            line = one.identity | {"games": study.measure(games, lexicon, config.goal)}
            study.append_row(
                Path(config.rows or workdir / "rows.jsonl"), line | {"revision": run_folder.git_revision()}
            )
            text, carried = _tables(config, workdir)
        print(text)
        return None if carried else 1


def runs(config: ConfigDict, workdir: Path) -> list[Run]:
    """The runs of the study's tables, seed by seed; one that needs a prepared folder has all commands up to it."""
    methods = dict.fromkeys(name for names in config.tables.values() for name in checks.listed(names))
    prepared = [part.split(": ", 1) for part in config.prepare.split("; ") if part]
    judge, found = {"goal": config.goal, "lexicon": load_lexicon(config.lexicon.file).digest}, []
    for seed, method in product(range(config.seed, config.seed + config.seeds), methods):
        own, at, of = f"{method}-{seed}", f"{workdir}", f"{workdir}/{method}-{seed}"
        training = f"{config.training} {config.methods[method]}"
        games = f"{config.evaluation} {config.games.get(method, '')}".strip()
        used = [place for place, (name, _) in enumerate(prepared, 1) if f"{{workdir}}/{name}" in training]
        flags = dict(prepared[: max(used, default=0)])
        identity = {"method": method, "seed": seed, "flags": " | ".join([training, games, *flags.values()])}
        flags[own] = f"{training} --config.seed={seed}"
        # What evaluates agents that speak names the run by another key.
        flags[f"{own}/games"] = games if "{run}" in games else f"{games} --config.agent.dir={{run}}"
        commands = {}
        for name, text in flags.items():
            # Split before the folders are put in, which may hold blanks.
            words = [word.replace("{run}", of).replace("{workdir}", at) for word in text.split()]
            given = f"--config={words[0]}", f"--workdir={workdir / name}", *words[1:]
            commands[workdir / name] = (sys.executable, "-m", "motif_jax.launch", *given)
        found.append(Run(identity | judge, commands))
    return found


def _results(config: ConfigDict, workdir: Path) -> tuple[dict[str, dict[int, Any]], list[Run]]:
    """Method -> seed -> measure -> the numbers of its games, of the runs with a line; the runs without one."""
    lines = read_json_lines(config.rows or workdir / "rows.jsonl", ("seed",))
    rows = [row for row in lines if isinstance(row.get("games"), dict)]
    found: dict[str, dict[int, Any]] = {method: {} for method in config.methods}
    planned = runs(config, workdir)
    for row in (row for row in rows for one in planned if one.identity.items() <= row.items()):
        found[row["method"]].setdefault(row["seed"], row["games"])
    if len({len(games) for of in found.values() for run in of.values() for games in run.values()}) > 1:
        raise UserError("config.rows: its runs have different numbers of games: take out the wrong lines")
    if missing := study.missing_measure(found, checks.listed(config.measures)):
        key, known = missing
        raise UserError(
            f"config.measures={key}: no game of the study has this number: they have {', '.join(known)} (give one of those; what is "
            "finished is not run again)"
        )
    return found, [one for one in planned if one.identity["seed"] not in found[one.identity["method"]]]


def _tables(config: ConfigDict, workdir: Path) -> tuple[str, bool]:
    """Writes tables and claims of the lines that are there; the text, and whether no claim fails."""
    (there, _), shown = _results(config, workdir), []
    for title, names in config.tables.items():
        methods = {name.replace("_", " "): there[name] for name in checks.listed(names)}
        shown.append(study.table(methods, title, checks.listed(config.measures), config.resamples))
    claims, carried = study.claims(there, parsed_claims(config.claims, list(there)), config.resamples)
    text = "\n\n".join([*shown, *([claims] if config.claims else [])])
    atomic_write_text(workdir / "tables.md", f"{text}\n")
    return text, carried


def _check_flags(missing: list[Run]) -> None:
    first = {one.identity["method"]: one.commands.values() for one in missing}
    for command in dict.fromkeys(command for commands in first.values() for command in commands):
        done = subprocess.run([*command, "--print_config"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise UserError(f"{reason.removeprefix('error: ')} (of the study's {shlex.join(command[3:])})")


def _made(folder: Path, command: tuple[str, ...], stop: interruption.Interruption) -> bool:
    """Whether the command has ended well, now or before; False when asked to stop. Raises UserError: it failed."""
    done, told = folder / "done.txt", shlex.join(command)
    if done.is_file() and done.read_text() == told:
        return True
    with interruption.deaf_processes():
        process = subprocess.Popen(command, preexec_fn=sigterm_on_parent_death)
    while process.poll() is None:
        if stop.requested:
            process.terminate()
        time.sleep(0.2)
    if stop.requested:
        return False
    if process.returncode:
        raise UserError(f"this run of the study ended with exit code {process.returncode}: {told}")
    atomic_write_text(done, told)
    return True
