"""Runs that exist already, for a study that trains nothing: evaluations and trainings, and files of
the published tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core import metric_files, run_folder
from motif_jax.core.errors import UserError, printable
from motif_jax.motif.annotation.lexicon import load_lexicon
from motif_jax.play import evaluation_files
from motif_jax.published import results
from motif_jax.reports import probe_report, study
from motif_jax.reports.curves import Learned, learning_curve
from motif_jax.reports.run_data import provenance_of
from motif_jax.reports.study import StudyRuns, parsed_claims
from motif_jax.reports.study_config import StudyConfig
from motif_jax.rl.choices import LEARNED_REWARDS

# What files of published tools hold: returns of GLAM's tests, episodes of ILQL's evaluations.
_PUBLISHED_GAMES = {".npy": "returns", ".pkl": "episodes"}
# Keys of a training's config.reward that change nothing of its intrinsic return.
_COEFFICIENTS = (
    "intrinsic_coefficient",
    "extrinsic_coefficient",
    "extrinsic_scale",
    "extrinsic_clip",
)


class FinishedRun(NamedTuple):
    """A folder or file of `config.runs`; `kind` as of `kind_of`."""

    method: str
    path: Path
    kind: str


def parsed_runs(text: str) -> dict[str, list[Path]]:
    """Method -> the folders of 'name=folder,folder; name=folder'."""
    methods: dict[str, list[Path]] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, folders = part.split("=", 1)
        methods.setdefault(name.strip(), []).extend(map(Path, checks.listed(folders)))
    return methods


def parsed_tasks(text: str) -> dict[str, str]:
    """The task's name in the published file -> its name here."""
    names = {}
    for part in checks.listed(text):
        theirs, ours = part.split("=", 1)
        names[theirs.strip()] = ours.strip()
    return names


def read(config: StudyConfig) -> StudyRuns:
    """Reads the folders and files of `config.runs` and `config.published`; each task has a table.

    Raises UserError: one of them is no run or cannot be read, counts twice, or was rated by another
    reward.
    """
    methods = parsed_runs(config.runs)
    runs = [
        FinishedRun(method, path, kind_of(path))
        for method, paths in methods.items()
        for path in paths
    ]
    evaluations = {
        run.path: evaluation_files.read_evaluation(run.path)
        for run in runs
        if run.kind == "evaluation"
    }
    _require_single_use(runs, evaluations)
    keys = checks.listed(config.measures)
    for key in keys:
        evaluation_files.require_comparable(evaluations, key, "measures")
        if evaluation_files.is_of_the_reward(key):
            _require_one_reward([run.path for run in runs if run.kind == "training"], key)
    for claim in parsed_claims(config.claims, list(methods)):
        evaluation_files.require_comparable(evaluations, claim.measure, "claims")

    found = StudyRuns()
    _add_games(found, runs, evaluations, config)
    if len(found.tables) == 1:
        # Claims compare the games of one task.
        (found.methods,) = found.tables.values()
    for run in runs:
        name = f"{run.method}: {run.path}"
        if run.kind == "training":
            curves = metric_files.read_episodes(run.path)
            found.trainings.append(Learned(run.method, str(trained_task(run.path)), curves))
        if run.kind == "log":
            curves = results.read_log(run.path)
            task = _task_of(run, runs, evaluations)
            found.trainings.append(Learned(run.method, task, curves))
            probes = probe_report.read_published(run.path)
            if probes is not None:
                found.probes[name] = probes
        found.provenance += provenance_of(run.path, name)
    if config.published:
        task_names = parsed_tasks(config.published_tasks)
        for result in results.read_published(config.published):
            line = learning_curve(f"{result.method}, published", result.seeds, dashed=True)
            task = task_names.get(result.task, result.task)
            found.published.setdefault(task, []).append(line)
    return found


def kind_of(path: Path) -> str:
    """'returns', 'episodes', 'log', 'evaluation' or 'training'; UserError for anything else."""
    if path.suffix in _PUBLISHED_GAMES and path.is_file():
        return _PUBLISHED_GAMES[path.suffix]
    if results.is_log(path):
        return "log"
    if (path / evaluation_files.SUMMARY).is_file():
        return "evaluation"
    if trained_task(path) is not None:
        return "training"
    raise UserError(
        f"config.runs: {path} must be a finished evaluation, a run of train_agent, a log.csv's folder or .npy file of GLAM's tool, or a "
        "log (.pkl) of ILQL's evaluations"
    )


def trained_task(folder: Path) -> str | None:
    """The environment of a run of train_agent; None of any other folder."""
    if not (folder / run_folder.CONFIG).is_file():
        return None
    config = run_folder.read_config(folder)
    is_training = config.get("stage") == "train_agent"
    return config.get("environment", {}).get("name") if is_training else None


def _require_single_use(
    runs: Sequence[FinishedRun], evaluations: Mapping[Path, Mapping[str, Any]]
) -> None:
    """Raises UserError where a run counts twice, which would make intervals too narrow: a folder or
    a copy of an evaluation, or two evaluations of one training under one method.
    """
    first_uses: dict[Any, FinishedRun] = {}
    for run in runs:
        is_evaluation = run.kind == "evaluation"
        # A copy of an evaluation has its digest.
        identity = evaluations[run.path]["digest"] if is_evaluation else run.path.resolve()
        first = first_uses.setdefault(identity, run)
        if first is not run:
            raise UserError(
                f"config.runs: {run.path} under {run.method} is {first.path} under {first.method}: a run counts once"
            )
        if not is_evaluation:
            continue
        plan = evaluations[run.path]["plan"]
        # The path of an agent begins where it was evaluated.
        policy = run_folder.stored_folder(run.path, plan["policy"])
        if policy is None:  # random, or an agent that lies elsewhere now
            continue
        training = (run.method, plan["environment"], policy.resolve())
        earlier = first_uses.setdefault(training, run)
        if earlier is not run:
            raise UserError(
                f"config.runs: {earlier.path} and {run.path}, under {run.method}, both evaluate {plan['policy']}: a training counts "
                "once, so give one of them"
            )


def _require_one_reward(trainings: Sequence[Path], key: str) -> None:
    """Raises UserError if trainings had different rewards; `require_comparable` does this for
    evaluations.
    """
    rewards = {folder: _reward_of(folder) for folder in trainings}
    for folder in trainings[1:]:
        difference = evaluation_files.rewards_apart(rewards[trainings[0]], rewards[folder])
        if difference:
            raise UserError(
                f"config.measures={key}: {trainings[0]} and {folder} were trained with different rewards ({difference}): evaluate "
                "both with the same config.reward, and compare the evaluations"
            )


def _reward_of(training: Path) -> dict[str, Any]:
    """What identifies a training's intrinsic reward; one that is learned online is the run's
    own.
    """
    reward = run_folder.read_config(training).get("reward", {})
    if reward.get("kind") in LEARNED_REWARDS:
        return {"kind": reward["kind"], "dir": str(training)}
    return {key: value for key, value in reward.items() if key not in _COEFFICIENTS}


def _task_of(
    run: FinishedRun, runs: Sequence[FinishedRun], evaluations: Mapping[Path, Mapping[str, Any]]
) -> str:
    """The environment of a run. Published files do not say theirs: it is that of the runs beside
    them.
    """
    if run.kind == "evaluation":
        return str(evaluations[run.path]["plan"]["environment"])
    if run.kind == "training":
        return str(trained_task(run.path))
    own = [other for other in runs if other.kind in ("evaluation", "training")]
    tasks = sorted({_task_of(other, runs, evaluations) for other in own})
    if len(tasks) > 1:
        raise UserError(
            f"config.runs: {run.path} does not say its task: give it beside runs of that task alone, not of {', '.join(tasks)}"
        )
    return tasks[0] if tasks else "published"


def _add_games(
    found: StudyRuns,
    runs: Sequence[FinishedRun],
    evaluations: Mapping[Path, Mapping[str, Any]],
    config: StudyConfig,
) -> None:
    """Adds the numbers of the games of evaluations and of files with games."""
    lexicon = load_lexicon(config.lexicon.file)
    played: dict[str, list[tuple[Any, ...] | None]] = {}
    for run in runs:
        if run.kind in ("training", "log"):
            continue
        if run.kind == "evaluation":
            evaluation = evaluations[run.path]
            numbers = study.measure(evaluation["rows"], lexicon, config.goal)
            # Options of the environment are a part of a game's identity.
            games: tuple[Any, ...] | None = tuple(evaluation_files.games(evaluation, "seed"))
        else:
            numbers = _published_numbers(run)
            games = None  # which they were, the files do not say
        task = _task_of(run, runs, evaluations)
        played.setdefault(task, []).append(games)
        runs_of_method = found.tables.setdefault(task, {}).setdefault(run.method, {})
        runs_of_method[str(run.path)] = numbers
    for task, games_of_runs in played.items():
        found.games_are_pairs[task] = None not in games_of_runs and len(set(games_of_runs)) == 1


def _published_numbers(run: FinishedRun) -> dict[str, list[float]]:
    """Measure -> the numbers of a published tool's episodes; those that are not finite are left
    out.
    """
    if run.kind == "returns":
        returns = results.read_returns(run.path)
        # BabyAI-Text pays success alone.
        return {"return": returns.tolist(), "success": (returns > 0).astype(float).tolist()}
    log = results.read_evaluation_log(run.path)
    print(printable(f"{run.path}: {log.in_words()}"))
    numbers = {"return": log.returns.tolist()}
    if len(log.entropies) == len(log.returns) and np.isfinite(log.entropies).all():
        numbers["entropy"] = log.entropies.tolist()
    return numbers
