"""Compares methods over several runs and seeds, and with published curves."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
from motif_jax.reports import claims, comparison_page, efficiency, probe_report, run_report
from motif_jax.reports.comparison import (
    Comparison,
    RunScore,
    as_json,
    collect_scores,
    compare,
    normalise,
)
from motif_jax.reports.comparison_checks import (
    PUBLISHED_SCORES,
    check_folders,
    check_unread_keys,
    kind_of_folder,
    task_names,
)
from motif_jax.reports.comparison_page import ComparisonData
from motif_jax.reports.config import CompareConfig
from motif_jax.reports.smoothing import LEAST, learning_curve
from motif_jax.schema import read_section

# Exit code where the games do not carry a claim.
NOT_CARRIED = 1


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree)
    config = read_section(CompareConfig, config_tree)
    checks.require_key(
        config, "methods", bool(config.methods or config.published), "given, or published"
    )
    methods = read_methods(config.methods)
    check_folders(methods, config.measure)

    check_unread_keys(config, methods)
    is_whole_scale = (config.normalise_zero is None) == (config.normalise_one is None)
    checks.require_key(
        config, "normalise_one", is_whole_scale, "given together with normalise_zero"
    )
    exists = config.published is None or Path(config.published).is_file()
    checks.require_key(config, "published", exists, "an existing file")
    is_of_returns = config.published is None or config.measure == "return"
    allowed = f"'return' with config.published: {config.published} has mean returns alone"
    checks.require_key(config, "measure", is_of_returns, allowed)
    _read_claims(config, _single_evaluations(config))
    task_names(config)


def read_methods(text: str) -> dict[str, list[Path]]:
    """Parses 'name=folder,folder; name=folder'; UserError for a part without a name or a folder."""
    methods: dict[str, list[Path]] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, _, folders = part.partition("=")
        paths = list(map(Path, checks.listed(folders)))
        is_valid = bool(name.strip()) and bool(paths) and "," not in name
        checks.require(is_valid, "methods", part, "'name=folder,folder; name=folder,...'")
        methods.setdefault(name.strip(), []).extend(paths)
    return methods


def _single_evaluations(config: CompareConfig) -> Mapping[str, Mapping[str, Any]]:
    """The evaluations of the methods that are one evaluation each, for claims and measures; {}
    where neither is wanted.
    """
    if not (config.claims or config.measures):
        return {}
    evaluations = {
        name: evaluation_files.read_evaluation(folders[0])
        for name, folders in read_methods(config.methods).items()
        if len(folders) == 1 and kind_of_folder(folders[0]) == "evaluation"
    }
    key = "claims" if config.claims else "measures"
    allowed = "empty where no method of config.methods is a single evaluation"
    checks.require_key(config, key, bool(evaluations), allowed)
    return evaluations


def _read_claims(
    config: CompareConfig, evaluations: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[claims.Claim]]:
    """The keys in `config.measures` and the claims. Raises UserError where the evaluations have no
    comparable numbers of them.
    """
    measures = checks.listed(config.measures)
    parsed_claims = claims.parsed_claims(config.claims, list(evaluations))
    used = [(key, "measures") for key in measures]
    used += [(claim.measure, "claims") for claim in parsed_claims]
    for key, config_key in used:
        claims.require_measure(key, evaluations, config_key)
        evaluation_files.require_comparable(evaluations, key, config_key)
    load_lexicon(config.lexicon.file)
    return measures, parsed_claims


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    """Reads the folders, compares, and writes page, tables and plots; returns 1 where a claim does
    not hold.
    """
    config = read_section(CompareConfig, config_tree)
    # All is read and computed before the folder is opened: a refusal leaves it as it was.
    data = ComparisonData(config.title, measure=with_unit(measure(config.measure)))
    scores = _read_folders(data, config)
    if config.published is not None:
        _add_published_curves(data, Path(config.published), task_names(config))
    if scores:
        data.comparison = _compared(scores, config)
    data.efficiency_steps = config.efficiency_steps
    if data.learned:
        # Before anything is written: a run may be too short.
        efficiency.table(data.learned, config.efficiency_steps)
    evaluations = _single_evaluations(config)
    if evaluations:
        measures, parsed_claims = _read_claims(config, evaluations)
        lexicon = load_lexicon(config.lexicon.file)
        data.claims = claims.side_by_side(
            evaluations, measures, parsed_claims, lexicon, config.resamples
        )

    with run_folder.opened(workdir, config_tree):
        _write(config, workdir, data)
    failed = []
    if data.claims is not None:
        failed = [str(finding.claim) for finding in data.claims.findings if not finding.holds]
    if failed:
        print(f"not supported by these games: {'; '.join(failed)}", file=sys.stderr)
        return NOT_CARRIED
    return None


def _read_folders(data: ComparisonData, config: CompareConfig) -> list[RunScore]:
    """The scores of evaluations; adds the learning curves of trainings, probes and provenance to
    `data`.
    """
    scores: list[RunScore] = []
    seeds: dict[str, dict[str, list[Curve]]] = {}
    for method, folders in read_methods(config.methods).items():
        for folder in folders:
            kind = kind_of_folder(folder)
            name = f"{method}: {folder}"
            if kind == "evaluation":
                scores.append(_score(method, folder, config.measure))
            elif kind in PUBLISHED_SCORES.values():
                scores.append(_published_score(method, folder, config))
            else:
                learned = _learned(method, folder, kind, config)
                data.learned.append(learned)
                seeds.setdefault(learned.task, {}).setdefault(method, []).append(learned.curve)
            if kind == "log":
                published_probes = probe_report.read_published(folder)
                if published_probes is not None:
                    data.probes[name] = published_probes
            data.provenance += run_report.provenance_of(folder, name)
    for task, methods in seeds.items():
        data.curves[task] = [
            learning_curve(method, runs, least=LEAST) for method, runs in methods.items()
        ]
    return scores


def _add_published_curves(data: ComparisonData, file: Path, task_names: Mapping[str, str]) -> None:
    data.published = file.name
    for result in results.read_published(file):
        task = task_names.get(result.task, result.task)
        line = learning_curve(f"{result.method}, published", result.seeds, dashed=True)
        data.curves.setdefault(task, []).append(line)


def _compared(scores: list[RunScore], config: CompareConfig) -> Comparison:
    table = collect_scores(scores, "")
    if config.normalise_zero is not None and config.normalise_one is not None:
        table = normalise(table, config.normalise_zero, config.normalise_one)
    elif len(table.tasks) > 1:
        print(
            "note: tasks have their own scales; normalise_zero and normalise_one let them be averaged"
        )
    return compare(table, config.resamples, config.seed, config.measure)


def _learned(method: str, folder: Path, kind: str, config: CompareConfig) -> efficiency.Learned:
    """The learning curve of a training here, or of GLAM's log.csv."""
    if kind == "log":
        curve = glam_results.read_curve(folder, config.measure)
        return efficiency.Learned(method, config.published_task or "", curve)
    task, curve = _training_curve(folder, config.measure)
    return efficiency.Learned(method, task, curve)


def _score(method: str, folder: Path, key: str) -> RunScore:
    """The mean of a finished evaluation, and the result of each of its games."""
    evaluation = evaluation_files.read_evaluation(folder)
    if key not in evaluation["measures"]:
        have = ", ".join(evaluation["measures"])
        raise UserError(f"config.measure={key}: {folder} has no such number; it has {have}")
    score = evaluation["measures"][key]["mean"]["value"]
    return RunScore(
        method, evaluation["plan"]["environment"], score, evaluation_files.games(evaluation, key)
    )


def _published_score(method: str, path: Path, config: CompareConfig) -> RunScore:
    """The mean of a published tool's episodes; which games they were, its files do not say."""
    if path.suffix == ".npy":
        returns = glam_results.read_returns(path)
        # BabyAI-Text pays success alone.
        numbers_by_key = {"return": returns, "success": (returns > 0).astype(float)}
    else:
        log = evaluation_logs.read(path)
        print(printable(f"{path}: {log.in_words()}"))
        numbers_by_key = {"return": log.returns}
        if len(log.entropies):
            numbers_by_key["entropy"] = log.entropies
    numbers = numbers_by_key.get(config.measure)
    if numbers is None:
        raise UserError(f"config.measure={config.measure}: {path} has {', '.join(numbers_by_key)}")
    if not np.isfinite(numbers).all():
        raise UserError(
            f"config.measure={config.measure}: {path} has numbers of it that are not finite"
        )
    return RunScore(method, config.published_task or "", float(numbers.mean()), {})


def _training_curve(folder: Path, key: str) -> tuple[str, Curve]:
    """The task of a training and the curve of `key` over its episodes."""
    episodes = metric_files.read_episodes(folder)
    if key not in episodes:
        have = ", ".join(episodes)
        raise UserError(
            f"config.measure={key}: {folder}/episodes.jsonl has no such number; it has {have}"
        )
    environment = run_folder.read_config(folder).get("environment")
    if not isinstance(environment, dict) or not isinstance(environment.get("name"), str):
        raise UserError(
            f"{folder / 'config.json'} is damaged (no environment.name): restore a copy of it"
        )
    return environment["name"], episodes[key]


def _write(config: CompareConfig, workdir: Path, data: ComparisonData) -> None:
    sections = comparison_page.sections(data)
    path = page.write(workdir, "comparison", data.title, [], sections, config.plots)
    numbers = workdir / "comparison.json"
    if data.comparison is not None:
        findings = {} if data.claims is None else data.claims.as_json()
        atomic_write_json(numbers, {**as_json(data.comparison), **findings})
    else:
        # An earlier comparison in this folder may have had scores, which this one has not.
        numbers.unlink(missing_ok=True)
    for section, table in page.file_tables(sections):
        note = table.note or section.note
        text_tables.show(table.header, table.texts(), section.title, note)
    print(f"comparison: {path}")
