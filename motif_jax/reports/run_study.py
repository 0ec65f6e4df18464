"""Trains several methods with several seeds, plays games with each, and keeps the results as lines
of a file; or puts runs that exist already beside each other.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import entry_points, interruption, metric_files, run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text, read_json_lines
from motif_jax.motif.annotation.lexicon import load_lexicon
from motif_jax.play import evaluation_files
from motif_jax.reports import finished_runs, study
from motif_jax.reports.curves import Learned
from motif_jax.reports.study import StudyPage, StudyRuns, parsed_claims
from motif_jax.reports.study_config import StudyConfig
from motif_jax.schema import read_section

_CONFIG_AND_FLAGS = "a config file and its flags"
_PR_SET_PDEATHSIG = 1  # of Linux
# Follows the name of a folder: nothing that would belong to the name.
_NAME_END = r"(?![\w.=+-])"


class Run(NamedTuple):
    """What identifies the line of a run, and folder -> command of all that makes it; the last one
    plays the games.
    """

    identity: dict[str, Any]
    commands: dict[Path, tuple[str, ...]]

    @property
    def games(self) -> Path:
        """The folder of the evaluation."""
        return list(self.commands)[-1]

    def steps(self) -> Iterator[StudyCommand]:
        """The commands in their order."""
        history: list[str] = []
        for folder, command in self.commands.items():
            history.append(shlex.join(command))
            yield StudyCommand(folder, command, tuple(history))


class StudyCommand(NamedTuple):
    """A command of a run.

    Attributes:
      history: it and the commands before it in the run, as a shell reads them. What it makes
          depends on all of them.
    """

    folder: Path
    command: tuple[str, ...]
    history: tuple[str, ...]

    @property
    def done_file(self) -> Path:
        """Holds the history of the command that has ended well in the folder."""
        return self.folder / "done.txt"


class Lines(NamedTuple):
    """The finished runs of a study: method -> seed -> measure -> the numbers of its games; the runs
    without a line; and whether all runs played the same games.
    """

    finished: dict[str, dict[int, Any]]
    missing: list[Run]
    games_are_pairs: bool = True


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree, ("stage",))
    config = read_section(StudyConfig, config_tree)
    checks.choice(config, "goal", load_lexicon(config.lexicon.file).goals)
    if config.runs or config.published:
        return
    checks.require_key(config, "training", bool(config.training), _CONFIG_AND_FLAGS)
    for method in config.games:
        # Games of a method that there is not would never be played.
        allowed = f"of {', '.join(sorted(config.methods))}"
        checks.require(method in config.methods, "games", method, allowed)
    # A claim about a method without a table would never be decided: it is not run.
    parsed_claims(config.claims, _methods_in_tables(config))
    _read_lines(config, workdir)


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    """Makes the runs without a line, or reads the finished `config.runs`; returns 75 when asked to
    stop, 1 where the runs do not support a claim.
    """
    config = read_section(StudyConfig, config_tree)
    if config.runs or config.published:
        return _show_finished(config, config_tree, workdir)
    with interruption.Interruption() as stop, run_folder.opened(workdir, config_tree, ("stage",)):
        missing = _read_lines(config, workdir).missing
        lexicon = load_lexicon(config.lexicon.file)
        # Refusals come before any training, which may take hours.
        _refuse_other_history(missing)
        _check_flags(missing)
        for planned in missing:
            _trust_named_code(planned)
        # Here, too: where no run is missing, only the tables are written.
        shown = _write(config, workdir)

        rows_file = Path(config.rows or workdir / "rows.jsonl")
        start = time.monotonic()
        for number, planned in enumerate(missing):
            remaining = ""
            if number:
                hours = (time.monotonic() - start) / number * (len(missing) - number) / 3600
                remaining = f", about {hours:.1f} h left"
            name = planned.games.parent.name
            print(f"== run {number + 1} of {len(missing)}: {name}{remaining}", file=sys.stderr)
            for step in planned.steps():
                if not run_step(step, stop):
                    return interruption.EXIT_CODE
            evaluation = evaluation_files.read_evaluation(planned.games)
            measures = study.measure(evaluation["rows"], lexicon, config.goal)
            row = {**planned.identity, "games": measures, "revision": run_folder.git_revision()}
            if not evaluation["plan"].get(evaluation_files.SEEDED, True):
                row[evaluation_files.SEEDED] = False
            study.append_row(rows_file, row)
            shown = _write(config, workdir)
        return _result(workdir, shown)


def _show_finished(config: StudyConfig, config_tree: ConfigDict, workdir: Path) -> int | None:
    """Writes the page of runs that exist already."""
    # All is read and computed before the folder is opened: a refusal leaves it as it was.
    shown = study.page_of(config, finished_runs.read(config))
    with run_folder.opened(workdir, config_tree, ("stage",)):
        study.write(workdir, shown)
    return _result(workdir, shown)


def _result(workdir: Path, shown: StudyPage) -> int | None:
    """Prints the tables and claims, and where the page is; returns the exit code."""
    page = (workdir / study.PAGE).resolve()
    print(page.with_suffix(".md").read_text(encoding="utf-8"))
    print(f"study: {page}")
    return None if shown.claims_hold else 1


def runs(config: StudyConfig, workdir: Path) -> list[Run]:
    """The runs of the study's tables, seed by seed; one that needs a prepared folder has all
    commands up to it.
    """
    methods = _methods_in_tables(config)
    judge = {"goal": config.goal, "lexicon": load_lexicon(config.lexicon.file).digest}
    planned = []
    for seed in range(config.seed, config.seed + config.seeds):
        for method in methods:
            planned.append(_planned_run(config, workdir, method, seed, judge))
    return planned


def _methods_in_tables(config: StudyConfig) -> list[str]:
    """The methods that are run, in the order of the tables; a config sorts its methods."""
    names = (name for listed in config.tables.values() for name in checks.listed(listed))
    return list(dict.fromkeys(names))


def _planned_run(
    config: StudyConfig, workdir: Path, method: str, seed: int, judge: dict[str, Any]
) -> Run:
    training = f"{config.training} {config.methods[method]}"
    games = f"{config.evaluation} {config.games.get(method, '')}".strip()
    prepared = _prepared_for(config, f"{training} {games}")
    # The flags identify a run with their placeholders: a study that moves keeps its lines.
    flags = " | ".join([training, games, *prepared.values()])
    identity = {"method": method, "seed": seed, "flags": flags, **judge}

    name = f"{method}-{seed}"
    run_workdir = f"{workdir}/{name}"
    # What evaluates agents that speak names the run by another key.
    evaluation = games if "{run}" in games else f"{games} --config.agent.dir={{run}}"
    steps = prepared | {name: f"{training} --config.seed={seed}", f"{name}/games": evaluation}
    commands = {}
    for folder, text in steps.items():
        # Split before the folders are put in, which may hold blanks.
        words = [
            word.replace("{run}", run_workdir).replace("{workdir}", str(workdir))
            for word in text.split()
        ]
        flags_of_folder = (f"--config={words[0]}", f"--workdir={workdir / folder}", *words[1:])
        commands[workdir / folder] = (sys.executable, "-m", "motif_jax.launch", *flags_of_folder)
    return Run(identity, commands)


def _prepared_for(config: StudyConfig, flags: str) -> dict[str, str]:
    """Folder -> command of the preparations up to the last one whose folder the flags name."""
    steps = [part.split(": ", 1) for part in config.prepare.split("; ") if part]
    needed = 0
    for number, (folder, _) in enumerate(steps, start=1):
        path = re.escape(f"{{workdir}}/{folder}")
        if re.search(path + _NAME_END, flags):
            needed = number
    return {step[0]: step[1] for step in steps[:needed]}


def _read_lines(config: StudyConfig, workdir: Path) -> Lines:
    """Raises UserError: the runs have different numbers of games."""
    lines = read_json_lines(config.rows or workdir / "rows.jsonl", ("seed",))
    rows = [row for row in lines if isinstance(row.get("games"), dict)]
    planned = runs(config, workdir)
    finished: dict[str, dict[int, Any]] = {method: {} for method in config.methods}
    games_are_pairs = True
    for row in rows:
        if any(run.identity.items() <= row.items() for run in planned):
            # Of a run with several lines the first counts.
            finished[row["method"]].setdefault(row["seed"], row["games"])
            games_are_pairs = games_are_pairs and row.get(evaluation_files.SEEDED, True)

    lengths = {
        len(numbers)
        for runs_of_method in finished.values()
        for games in runs_of_method.values()
        for numbers in games.values()
    }
    if len(lengths) > 1:
        # Two methods would be compared over the games of the shorter one.
        raise UserError(
            "config.rows: its runs have different numbers of games: take out the wrong lines"
        )
    missing = [
        run for run in planned if run.identity["seed"] not in finished[run.identity["method"]]
    ]
    return Lines(finished, missing, games_are_pairs)


def _write(config: StudyConfig, workdir: Path) -> StudyPage:
    """Writes the page from the lines of finished runs."""
    lines = _read_lines(config, workdir)
    made = StudyRuns()
    for title, names in config.tables.items():
        made.tables[title] = {
            name.replace("_", " "): lines.finished[name] for name in checks.listed(names)
        }
        made.games_are_pairs[title] = lines.games_are_pairs
    made.methods = {method: lines.finished[method] for method in _methods_in_tables(config)}
    folders = {}
    for method, finished in made.methods.items():
        named = [workdir / f"{method}-{seed}" for seed in sorted(finished)]
        folders[method.replace("_", " ")] = named
    for method, folders_of_method in folders.items():
        for folder in folders_of_method:
            # The other stages have no curves over environment steps.
            task = finished_runs.trained_task(folder)
            if task is not None:
                made.trainings.append(Learned(method, task, metric_files.read_episodes(folder)))
    made.without_curve = _without_curve(folders)
    shown = study.page_of(config, made)
    study.write(workdir, shown)
    return shown


def _without_curve(folders: Mapping[str, Sequence[Path]]) -> str:
    """A sentence that names the trainings whose folders lie elsewhere; '' where all are here."""
    missing = []
    for method, folders_of_method in folders.items():
        number = sum(not (folder / run_folder.CONFIG).is_file() for folder in folders_of_method)
        if number:
            missing.append(f"{method} ({number} of {len(folders_of_method)})")
    if not missing:
        return ""
    return f"Trainings whose folders are not here have no curve: {', '.join(missing)}."


def _trust_named_code(planned: Run) -> None:
    """Lets all commands of a run import what the flags of one of them name: the training names code
    of the user's, and so does the folder that it makes, in which the games play.
    """
    for word in itertools.chain.from_iterable(planned.commands.values()):
        flag, _, value = word.partition("=")
        entry_points.trust(entry_points.named(value, flag.rpartition(".")[2]))


def _check_flags(missing: list[Run]) -> None:
    """Raises UserError, before anything runs, where a command of a method refuses its flags."""
    # The runs of a method differ in their seeds alone.
    commands_of_method = {run.identity["method"]: run.commands.values() for run in missing}
    commands = dict.fromkeys(
        command for commands in commands_of_method.values() for command in commands
    )
    for command in commands:
        process = subprocess.run(
            [*command, "--print_config"], capture_output=True, text=True, check=False
        )
        if process.returncode != 0:
            reason = (process.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise UserError(
                f"{reason.removeprefix('error: ')} (of the study's {shlex.join(command[3:])})"
            )


def _refuse_other_history(missing: list[Run]) -> None:
    """Raises UserError, before anything runs, where a folder was made by the same command after
    others.

    The games of an agent that has been trained on since then would count as those of the longer
    training.
    """
    for step in itertools.chain.from_iterable(run.steps() for run in missing):
        if not step.done_file.is_file():
            continue
        history = tuple(step.done_file.read_text().splitlines())
        # A single line is of a version that kept no history.
        if len(history) > 1 and history[-1] == step.history[-1] and history != step.history:
            changed = next((line for line in step.history if line not in history), step.history[0])
            raise UserError(
                f"{step.folder} was made when a command before it was another one (now: {changed}): move the folder away, or give another "
                "--workdir"
            )


def _end_with_the_study() -> None:
    """A study that is killed passes nothing on: the kernel then sends its command SIGTERM."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def run_step(step: StudyCommand, stop: interruption.Interruption) -> bool:
    """Whether the command has ended well, now or before; False when asked to stop. Raises
    UserError: it failed.
    """
    history = "\n".join(step.history)
    if step.done_file.is_file() and step.done_file.read_text() == history:
        return True
    # The study passes a signal on by itself, once: a second one would end the command while it
    # saves.
    with interruption.deaf_processes():
        process = subprocess.Popen(step.command, preexec_fn=_end_with_the_study)
    while process.poll() is None:
        if stop.requested:
            process.terminate()
            process.wait()
            break
        time.sleep(0.2)
    if stop.requested:
        return False
    if process.returncode:
        raise UserError(
            f"this run of the study ended with exit code {process.returncode}: {step.history[-1]}"
        )
    atomic_write_text(step.done_file, history)
    return True
