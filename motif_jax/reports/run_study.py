"""Trains several methods with several seeds, plays games with each, and keeps the results as lines
of a file; or puts runs that exist already beside each other.
"""

from __future__ import annotations

import itertools
import re
import shlex
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
from motif_jax.core.parent_death import sigterm_on_parent_death
from motif_jax.motif.annotation.lexicon import load_lexicon
from motif_jax.play import evaluation_files
from motif_jax.reports import finished_runs, study, study_page
from motif_jax.reports.claims import parsed_claims
from motif_jax.reports.efficiency import Learned
from motif_jax.reports.study_config import StudyConfig
from motif_jax.reports.study_page import StudyData
from motif_jax.schema import read_section

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
        _check_finished(config)
        return
    for key, command in {"training": config.training, "evaluation": config.evaluation}.items():
        checks.require(bool(command.split()), key, command, "a config file and its flags")
    methods_of_key = {
        f"tables.{title}": checks.listed(names) for title, names in config.tables.items()
    }
    methods_of_key["games"] = list(config.games)
    for key, names in methods_of_key.items():
        for name in names:
            checks.require(
                name in config.methods, key, name, f"of {', '.join(sorted(config.methods))}"
            )
    # A claim about a method without a table would never be decided: it is not run.
    parsed_claims(config.claims, _methods_in_tables(config))
    is_complete = all(": " in part for part in config.prepare.split("; ") if part)
    checks.require_key(config, "prepare", is_complete, "'folder: command; folder: command; ...'")
    _read_lines(config, workdir)


def _check_finished(config: StudyConfig) -> None:
    """Raises UserError where a study of runs that exist cannot work; its folders are read by
    `run`.
    """
    checks.require_key(
        config, "training", not config.training, "empty with runs or published, which train nothing"
    )
    finished_runs.parsed_runs(config.runs)
    finished_runs.parsed_tasks(config.published_tasks)
    if config.published is not None:
        exists = Path(config.published).is_file()
        checks.require_key(config, "published", exists, "an existing file")
        has_returns = "return" in checks.listed(config.measures)
        allowed = "return, at least, of which published has means"
        checks.require_key(config, "measures", has_returns, allowed)


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
        text, claims_hold = _write_tables(config, workdir)

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
            text, claims_hold = _write_tables(config, workdir)
        _print(text, workdir)
        return None if claims_hold else 1


def _print(text: str, workdir: Path) -> None:
    if text:
        print(text)
    print(f"study: {(workdir / study_page.STEM).with_suffix('.html').resolve()}")


def _show_finished(config: StudyConfig, config_tree: ConfigDict, workdir: Path) -> int | None:
    """Writes the page of runs that exist already."""
    # All is read and computed before the folder is opened: a refusal leaves it as it was.
    found = finished_runs.read(config)
    keys = checks.listed(config.measures)
    tables = []
    for task, methods in found.games.items():
        pairs = found.games_are_pairs[task]
        tables.append(study.table(methods, task, keys, config.resamples, pairs))
    claims, claims_hold = "", True
    if config.claims:
        allowed = "empty unless the games of runs are of one task"
        checks.require_key(config, "claims", len(found.games) == 1, allowed)
        ((task, methods),) = found.games.items()
        stated = parsed_claims(config.claims, list(methods))
        pairs = found.games_are_pairs[task]
        claims, claims_hold = study.claims(methods, stated, config.resamples, pairs)
    data = StudyData(
        tables,
        claims,
        found.trainings,
        published=found.published,
        probes=found.probes,
        provenance=found.provenance,
    )
    with run_folder.opened(workdir, config_tree, ("stage",)):
        text = _write(workdir, data, keys)
    _print(text, workdir)
    return None if claims_hold else 1


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
    """Raises UserError: the runs have different numbers of games, or lack one of
    `config.measures`.
    """
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
        raise UserError(
            "config.rows: its runs have different numbers of games: take out the wrong lines"
        )
    missing_measure = study.missing_measure(finished, checks.listed(config.measures))
    if missing_measure is not None:
        key, available = missing_measure
        raise UserError(
            f"config.measures={key}: no game of the study has this number: they have {', '.join(available)} (give one of those; what is "
            "finished is not run again)"
        )
    missing = [
        run for run in planned if run.identity["seed"] not in finished[run.identity["method"]]
    ]
    return Lines(finished, missing, games_are_pairs)


def _write_tables(config: StudyConfig, workdir: Path) -> tuple[str, bool]:
    """Writes tables.md and study.html from the lines of finished runs; the text, and whether no
    claim fails.
    """
    lines = _read_lines(config, workdir)
    finished = lines.finished
    pairs = lines.games_are_pairs
    measures = checks.listed(config.measures)
    tables = []
    for title, names in config.tables.items():
        methods = {name.replace("_", " "): finished[name] for name in checks.listed(names)}
        tables.append(study.table(methods, title, measures, config.resamples, pairs))
    stated = parsed_claims(config.claims, _methods_in_tables(config))
    claims, claims_hold = study.claims(finished, stated, config.resamples, pairs)

    folders = {}
    for method in _methods_in_tables(config):
        named = [workdir / f"{method}-{seed}" for seed in sorted(finished[method])]
        folders[method.replace("_", " ")] = named
    trainings = []
    for method, folders_of_method in folders.items():
        for folder in folders_of_method:
            # The other stages have no curves over environment steps.
            task = finished_runs.trained_task(folder)
            if task is not None:
                trainings.append(Learned(method, task, metric_files.read_episodes(folder)))
    data = StudyData(tables, claims if config.claims else "", trainings, _without_curve(folders))
    return _write(workdir, data, measures), claims_hold


def _write(workdir: Path, data: StudyData, measures: Sequence[str]) -> str:
    """Writes tables.md and the page; returns the text of tables.md."""
    text = "\n\n".join(filter(None, [*(table.markdown() for table in data.tables), data.claims]))
    atomic_write_text(workdir / "tables.md", f"{text}\n")
    study_page.write(workdir, data, measures)
    return text


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
        # A study that is killed passes nothing on: the kernel then sends the command SIGTERM.
        process = subprocess.Popen(step.command, preexec_fn=sigterm_on_parent_death)
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
