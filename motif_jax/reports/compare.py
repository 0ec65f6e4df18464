"""Compares methods over several runs and seeds, and with published curves."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import metric_files, run_folder
from motif_jax.core.errors import UserError, printable
from motif_jax.core.files import atomic_write_json
from motif_jax.core.metric_files import Curve
from motif_jax.display import page, text_tables
from motif_jax.display.measures import measure, with_unit
from motif_jax.motif.annotation.lexicon import load_lexicon
from motif_jax.play import evaluation_files
from motif_jax.published import evaluation_logs, glam_results, results
from motif_jax.reports import claims, comparison_page, efficiency, probes, run_report
from motif_jax.reports.comparison import RunScore, as_json, collect_scores, compare, normalise
from motif_jax.reports.comparison_page import ComparisonData
from motif_jax.reports.smoothing import LEAST, learning_curve

# Exit code where the games do not carry a claim.
NOT_CARRIED = 1
# What files of published tools hold: returns of GLAM's tests, episodes of ILQL's evaluations.
_PUBLISHED_SCORES = {".npy": "returns", ".pkl": "episodes"}
# Keys of a training's config.reward that change nothing of its intrinsic return.
_NOT_OF_A_REWARD = ("intrinsic_coefficient", "extrinsic_coefficient", "extrinsic_scale", "extrinsic_clip")


def check(config: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config)
    checks.require_key(config, "methods", bool(config.methods or config.published), "given, or published")
    methods = read_methods(config.methods)
    _check_folders(methods, config.measure)
    folders = [folder for listed in methods.values() for folder in listed]
    published = [str(folder) for folder in folders if _kind(folder) not in ("evaluation", "run")]
    allowed = f"the task that {', '.join(published[:1])} is of, which it does not say"
    checks.require_key(config, "published_task", bool(config.published_task) or not published, allowed)
    both = (config.normalise_zero is None) == (config.normalise_one is None)
    checks.require_key(config, "normalise_one", both, "given together with normalise_zero")
    exists = config.published is None or Path(config.published).is_file()
    checks.require_key(config, "published", exists, "an existing file")
    _read_claims(config, _single_evaluations(config))
    _task_names(config)


def read_methods(text: str) -> dict[str, list[Path]]:
    """Parses 'name=folder,folder; name=folder'; UserError for a part without a name or a folder."""
    methods: dict[str, list[Path]] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, _, folders = part.partition("=")
        paths = list(map(Path, checks.listed(folders)))
        good = bool(name.strip()) and bool(paths) and "," not in name
        checks.require(good, "methods", part, "'name=folder,folder; name=folder,...'")
        methods.setdefault(name.strip(), []).extend(paths)
    return methods


def _check_folders(methods: dict[str, list[Path]], measure: str) -> None:
    evaluations, runs = {}, []
    folders: dict[Path, tuple[str, Path]] = {}
    trainings: dict[tuple[str, str, Path], Path] = {}
    for method, folder in ((method, folder) for method, listed in methods.items() for folder in listed):
        other, before = folders.setdefault(folder.resolve(), (method, folder))
        if before is not folder:
            where = f"twice under {method}" if other == method else f"under {other} and under {method}"
            also = f" (first as {before})" if str(before) != str(folder) else ""
            raise UserError(f"config.methods: {folder} is given {where}{also}: a run counts once")
        kind = _kind(folder)
        if kind == "run":
            runs.append(folder)
        elif kind == "evaluation":
            evaluations[folder] = evaluation_files.read_evaluation(folder)
            plan = evaluations[folder]["plan"]
            if not Path(plan["policy"]).is_dir():  # random, or an agent that lies elsewhere now
                continue
            training = (method, plan["environment"], Path(plan["policy"]).resolve())
            before = trainings.setdefault(training, folder)
            if before is not folder:
                raise UserError(
                    f"config.methods: {before} and {folder}, under {method}, both evaluate {plan['policy']}: a "
                    "training counts once, so give one of them"
                )
    evaluation_files.require_comparable(evaluations, measure, "measure")
    if evaluation_files.is_of_the_reward(measure):
        _require_one_reward(runs, measure)


def _require_one_reward(runs: Sequence[Path], measure: str) -> None:
    """Raises UserError if trainings had different rewards; `require_comparable` does this for evaluations."""
    rewards = {folder: _reward(folder) for folder in runs}
    for folder in runs[1:]:
        both = rewards[runs[0]], rewards[folder]
        # Rewards of two kinds have nothing else in common that could be told.
        kinds = ({"kind": reward["kind"]} for reward in both)
        if what := evaluation_files.rewards_apart(*kinds) or evaluation_files.rewards_apart(*both):
            raise UserError(
                f"config.measure={measure}: {runs[0]} and {folder} were trained with different rewards ({what}): evaluate both with "
                "the same config.reward, and compare the evaluations"
            )


def _reward(run: Path) -> dict[str, Any]:
    """What identifies a training's intrinsic reward; one that is learned online is the run's own."""
    from motif_jax.oni.online_model import KINDS
    from motif_jax.rl import reward_choice
    from motif_jax.rl.choices import MOTIF

    config = run_folder.read_config(run)
    given, switches = config.get("reward", {}), config.get("compat", {})
    if not isinstance(given, dict) or not isinstance(switches, dict):
        raise UserError(f"{run / 'config.json'} is damaged (reward or compat): restore a copy of it")
    kind = given.get("kind", MOTIF)
    if kind in KINDS:
        return {"kind": kind, "dir": str(run)}
    if kind != MOTIF:
        return {key: value for key, value in given.items() if key not in _NOT_OF_A_REWARD}
    settled, rounded = reward_choice.settled(run), switches.get("quantile_two_decimals", False)
    keys = ("dir", "step", "normalise", "quantile", "threshold", "count_exponent")
    found = {key: given.get(key) for key in keys} | ({} if settled is None else {"step": settled})
    return {"kind": kind, **found, "two_decimals": rounded}


def _kind(folder: Path) -> str:
    if folder.suffix in _PUBLISHED_SCORES and folder.is_file():
        return _PUBLISHED_SCORES[folder.suffix]
    if glam_results.is_log(folder):
        return "log"
    if (folder / evaluation_files.SUMMARY).is_file():
        return "evaluation"
    if (folder / "config.json").is_file() and run_folder.read_config(folder).get("stage") == "train_agent":
        return "run"
    raise UserError(
        f"config.methods: {folder} is neither a finished evaluation, a run of train_agent, a log.csv's folder or .npy file of GLAM's tool, nor a "
        "log (.pkl) of ILQL's evaluations"
    )


def _task_names(config: ConfigDict) -> dict[str, str]:
    names = {}
    for part in checks.listed(config.published_tasks):
        theirs, separator, ours = part.partition("=")
        checks.require(bool(separator and theirs and ours), "published_tasks", part, "'theirs=ours, ...'")
        names[theirs.strip()] = ours.strip()
    return names


def _single_evaluations(config: ConfigDict) -> Mapping[str, Mapping[str, Any]]:
    if not (config.claims or config.measures):
        return {}
    found = {
        name: evaluation_files.read_evaluation(folders[0])
        for name, folders in read_methods(config.methods).items()
        if len(folders) == 1 and _kind(folders[0]) == "evaluation"
    }
    key = "claims" if config.claims else "measures"
    allowed = "empty where no method of config.methods is a single evaluation"
    checks.require_key(config, key, bool(found), allowed)
    return found


def _read_claims(
    config: ConfigDict, evaluations: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[claims.Claim]]:
    measures, found = checks.listed(config.measures), claims.parsed_claims(config.claims, list(evaluations))
    given = [*((key, "measures") for key in measures), *((claim.measure, "claims") for claim in found)]
    for key, name in given:
        claims.require_measure(key, evaluations, name)
        evaluation_files.require_comparable(evaluations, key, name)
    load_lexicon(config.lexicon.file)
    return measures, found


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Reads the folders, compares, and writes page, tables and plots; returns 1 where a claim does not hold."""
    data = ComparisonData(config.title, measure=with_unit(measure(config.measure)))
    scores: list[RunScore] = []
    seeds: dict[str, dict[str, list[Curve]]] = {}
    for method, folders in read_methods(config.methods).items():
        for folder in folders:
            kind = _kind(folder)
            if kind == "evaluation":
                scores.append(_score(method, folder, config.measure))
            elif kind in _PUBLISHED_SCORES.values():
                scores.append(_published_score(method, folder, config))
            else:
                one = _learned(method, folder, kind, config)
                data.learned.append(one)
                seeds.setdefault(one.task, {}).setdefault(method, []).append(one.curve)
                if kind == "log" and (found := probes.read_published(folder)) is not None:
                    data.probes[f"{method}: {folder}"] = found
            data.provenance += run_report.provenance_of(folder, f"{method}: {folder}")
    for task, methods in seeds.items():
        data.curves[task] = [learning_curve(method, of, least=LEAST) for method, of in methods.items()]
    if config.published is not None:
        data.published = Path(config.published).name
        names = _task_names(config)
        for result in results.read_published(config.published):
            task = names.get(result.task, result.task)
            line = learning_curve(f"{result.method}, published", result.seeds, dashed=True)
            data.curves.setdefault(task, []).append(line)
    if scores:
        table = collect_scores(scores, "")
        if config.normalise_zero is not None:
            table = normalise(table, config.normalise_zero, config.normalise_one)
        elif len(table.tasks) > 1:
            print("note: tasks have their own scales; normalise_zero and normalise_one let them be averaged")
        data.comparison = compare(table, config.resamples, config.seed)
    data.efficiency_steps = config.efficiency_steps
    if data.learned:
        # Before anything is written: a run may be too short.
        efficiency.table(data.learned, config.efficiency_steps)
    if single := _single_evaluations(config):
        measures, claimed = _read_claims(config, single)
        lexicon = load_lexicon(config.lexicon.file)
        data.claims = claims.side_by_side(single, measures, claimed, lexicon, config.resamples)
    with run_folder.opened(workdir, config):
        _write(config, workdir, data)
    missed = [] if data.claims is None else [str(one.claim) for one in data.claims.findings if not one.holds]
    if missed:
        print(f"not supported by these games: {'; '.join(missed)}", file=sys.stderr)
        return NOT_CARRIED
    return None


def _learned(method: str, folder: Path, kind: str, config: ConfigDict) -> efficiency.Learned:
    if kind == "log":
        return efficiency.Learned(
            method, config.published_task, glam_results.read_curve(folder, config.measure)
        )
    return efficiency.Learned(method, *_training_curve(folder, config.measure))


def _score(method: str, folder: Path, key: str) -> RunScore:
    evaluation = evaluation_files.read_evaluation(folder)
    if key not in evaluation["measures"]:
        have = ", ".join(evaluation["measures"])
        raise UserError(f"config.measure={key}: {folder} has no such number; it has {have}")
    score = evaluation["measures"][key]["mean"]["value"]
    return RunScore(method, evaluation["plan"]["environment"], score, evaluation_files.games(evaluation, key))


def _published_score(method: str, path: Path, config: ConfigDict) -> RunScore:
    if path.suffix == ".npy":
        returns = glam_results.read_returns(path)
        measured = {"return": returns, "success": (returns > 0).astype(float)}
    else:
        log = evaluation_logs.read(path)
        print(printable(f"{path}: {log.in_words()}"))
        measured = {"return": log.returns, **({"entropy": log.entropies} if len(log.entropies) else {})}
    if (numbers := measured.get(config.measure)) is None:
        raise UserError(f"config.measure={config.measure}: {path} has {', '.join(measured)}")
    if not np.isfinite(numbers).all():
        raise UserError(f"config.measure={config.measure}: {path} has numbers of it that are not finite")
    return RunScore(method, config.published_task, float(numbers.mean()), {})


def _training_curve(folder: Path, key: str) -> tuple[str, Curve]:
    episodes = metric_files.read_episodes(folder)
    if key not in episodes:
        have = ", ".join(episodes)
        raise UserError(f"config.measure={key}: {folder}/episodes.jsonl has no such number; it has {have}")
    environment = run_folder.read_config(folder).get("environment")
    if not isinstance(environment, dict) or not isinstance(environment.get("name"), str):
        raise UserError(f"{folder / 'config.json'} is damaged (no environment.name): restore a copy of it")
    return environment["name"], episodes[key]


def _write(config: ConfigDict, workdir: Path, data: ComparisonData) -> None:
    # What an earlier comparison in this folder said, and this one may not.
    for kind in ("json", "md", "tex"):
        (workdir / f"comparison.{kind}").unlink(missing_ok=True)
    sections = comparison_page.sections(data)
    path = page.write(workdir, "comparison", data.title, [], sections, config.plots)
    if data.comparison is not None:
        claimed = {} if data.claims is None else data.claims.as_json()
        atomic_write_json(workdir / "comparison.json", {**as_json(data.comparison), **claimed})
    for section, table in page.file_tables(sections):
        note = table.note or section.note
        text_tables.show(table.header, table.texts(), section.title, note)
    print(f"comparison: {path}")
