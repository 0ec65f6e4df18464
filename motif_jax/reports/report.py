"""Writes one HTML page about a run from the folders of its stages."""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import metric_files, run_folder
from motif_jax.core.errors import printable
from motif_jax.core.files import atomic_write_json
from motif_jax.display import measures, page, text_tables
from motif_jax.envs.babyai_text.changes import EXCHANGED
from motif_jax.glam import generalisation_files
from motif_jax.motif.annotation.labels import counts
from motif_jax.motif.pairs.dataset import PairsDataset, open_datasets
from motif_jax.play import evaluation_files
from motif_jax.play.policies import BOT, FIXED, RANDOM
from motif_jax.reports import (
    evaluation_sections,
    probe_report,
    recorded_games,
    reward_values,
    run_report,
    success,
    text_section,
)
from motif_jax.reports.config import ReportConfig
from motif_jax.reports.glance import compared, headline
from motif_jax.reports.run_data import RunData, read_reward_summary
from motif_jax.rl import paid_texts
from motif_jax.schema import read_section

_TOKENS = "tokens.html"
STAGES = {
    "reward.dir": "train_reward",
    "agent.dir": "train_agent",
    "language.dir": "pretrain_language_model",
    "text.dir": "train_text",
}
FOLDERS = ("dataset_dir", *STAGES)
_PLAYERS = {FIXED: "fixed shares", RANDOM: RANDOM, BOT: BOT}


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree)
    config = read_section(ReportConfig, config_tree)
    folder_keys = [key for key in FOLDERS if checks.dotted(config, key)]
    for key in folder_keys:
        if key in STAGES:
            _check_stage(checks.existing_folder(config, key), key)
    if config.dataset_dir:
        open_datasets(checks.existing_folders(config, "dataset_dir"))
    evaluations = folders_of(config.evaluations)
    finished = (evaluation_files.SUMMARY, "a finished evaluation")
    players = ("step-*.html", "a folder with players (step-*.html) made by replay")
    # Key -> the file by which its folders are known, and what they are in words.
    needed_files = {"replays": players, "evaluations": finished, "yardsticks": finished}
    for key, (pattern, allowed) in needed_files.items():
        folders = folders_of(checks.dotted(config, key))
        for number, folder in enumerate(folders):
            checks.require(any(folder.glob(pattern)), key, str(folder), allowed)
            is_new = folder.resolve() not in {earlier.resolve() for earlier in folders[:number]}
            checks.require(is_new, key, str(folder), "named once")
    allowed = f"given, or one of {', '.join(FOLDERS)}, evaluations"
    checks.require(bool(folder_keys or evaluations), "agent.dir", None, allowed)
    for folder in folders_of(config.tests):
        generalisation_files.read(folder)
    is_shown = bool(config.agent.dir) or not config.replays
    checks.require_key(
        config, "replays", is_shown, "empty without agent.dir, whose recorded games they show"
    )
    parsed_measures(config.measures)
    if config.first_must_lead:
        contents = [evaluation_files.read_evaluation(folder) for folder in evaluations]
        are_of_one_kind = all(map(text_section.is_text, contents)) or all(
            map(success.is_of_babyai, contents)
        )
        allowed = "False unless evaluations names two or more of BabyAI-Text, or of text tasks"
        checks.require(are_of_one_kind and len(contents) > 1, "first_must_lead", True, allowed)


def _check_stage(folder: Path, key: str) -> None:
    """Raises UserError where a folder is not a run of the stage that its key wants."""
    stage = (
        run_folder.read_config(folder).get("stage") if (folder / "config.json").exists() else None
    )
    actual = f"it is one of {stage}" if stage else "it has no config.json"
    checks.require(stage == STAGES[key], key, str(folder), f"a run of {STAGES[key]}; {actual}")


def parsed_measures(text: str) -> dict[str, int]:
    """Measure -> 1 or -1, of '+kills,-deaths'. Raises UserError: one has no sign, or no name."""
    directions = {}
    for part in checks.listed(text):
        is_valid = part[0] in "+-" and bool(part[1:].strip())
        checks.require(is_valid, "measures", part, "+NAME if more of it is better, else -NAME")
        directions[part[1:].strip()] = 1 if part[0] == "+" else -1
    return directions


def _progress(data: RunData, config: ReportConfig) -> Mapping[str, int]:
    """The measures of `config.measures`; without any, those of the package's own environments.

    Raises UserError: no episode has one of them.
    """
    named = parsed_measures(config.measures)
    available = dict.fromkeys(data.episodes)
    for evaluation in data.evaluations.values():
        available |= dict.fromkeys(evaluation["measures"])
    for key in named:
        allowed = (
            f"of the numbers that the episodes have: {', '.join(measures.in_order(available))}"
        )
        checks.require(key in available, "measures", key, allowed)
    if named:
        return named
    environments = [evaluation["plan"]["environment"] for evaluation in data.evaluations.values()]
    if config.agent.dir:
        agent = run_folder.read_config(config.agent.dir)
        environments.append(agent.get("environment", {}).get("name"))
    # `gym:NAME` and `module:function`.
    has_others = any(":" in str(name) for name in environments)
    return {} if has_others else measures.PROGRESS


def folders_of(text: str) -> list[Path]:
    """The folders of a list with commas between."""
    return list(map(Path, checks.listed(text)))


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    """Reads the folders and writes the page; returns 1 if `config.first_must_lead` and the first
    evaluation does not lead.
    """
    config = read_section(ReportConfig, config_tree)
    # Before the folder is made, so that what cannot be read leaves none.
    data = _read(config, workdir)
    with run_folder.opened(workdir, config_tree):
        path = _write(config, workdir, data)
    _print(data, path)
    return _exit_code(config, data)


def _exit_code(config: ReportConfig, data: RunData) -> int | None:
    """1 if `config.first_must_lead` and the first evaluation does not lead, which is printed."""
    # Without the warning of `headline`, which says nothing of who leads.
    _, kind = compared(data)
    if not config.first_must_lead or kind == "good":
        return None
    first, *others = [name for name in data.evaluations if name not in data.yardsticks]
    print(
        f"first_must_lead: {first} is not clearly better than {', '.join(others)}", file=sys.stderr
    )
    return 1


def _read(config: ReportConfig, workdir: Path) -> RunData:
    """What the folders of the config hold at this moment."""
    data = RunData(title=config.title, lead=config.lead)
    _read_dataset_and_reward(data, config)
    _read_trainings(data, config, workdir)
    for folder in folders_of(config.tests):
        tests = generalisation_files.read(folder)
        data.tests[_distinct_name(tests["player"], data.tests)] = tests
        data.commands += run_report.command_of(folder, f"tests of {tests['player']}")
    _read_evaluations(data, config, workdir)
    data.progress = _progress(data, config)
    sources = [("dataset", folder) for folder in folders_of(config.dataset_dir or "")]
    for key in STAGES:
        folder_name = checks.dotted(config, key)
        if folder_name:
            sources.append((key.removesuffix(".dir"), Path(folder_name)))
    for name, folder in sources:
        data.provenance += run_report.provenance_of(folder, name)
        data.commands += run_report.command_of(folder, name)
    return data


def _read_dataset_and_reward(data: RunData, config: ReportConfig) -> None:
    dataset = None
    if config.dataset_dir:
        dataset = open_datasets(folders_of(config.dataset_dir))
        data.dataset = _facts(dataset)
        data.labels = {
            name: counts(dataset.preference(name)) for name in dataset.preference_names()
        }
    if config.reward.dir:
        # Reading an architecture imports jax.
        from motif_jax.motif.reward.reward_model import read_architecture, read_run

        folder = Path(config.reward.dir)
        architecture = read_architecture(folder)[0]
        if not architecture.message_only:
            data.reward_reads = architecture.fields
        elif dataset is not None:
            data.liked, data.message_curves = reward_values.liked_messages(config.reward, dataset)
        data.reward_train = metric_files.read_csv(folder / "train_metrics.csv")
        data.reward_validation = metric_files.read_csv(folder / "val_metrics.csv")
        data.reward_summary = read_reward_summary(folder)
        if config.reward.step is not None:
            # The summary is of the evaluation that is used without a step.
            rows = read_run(folder, config.reward.step).curve
            data.reward_summary = rows[-1] if rows else {}


def _read_trainings(data: RunData, config: ReportConfig, workdir: Path) -> None:
    """Reads the metrics and episodes of the agent's training, of a language model's, and of an
    agent's that speaks.
    """
    if config.agent.dir:
        data.metrics = metric_files.read_curves(config.agent.dir)
        data.learned = reward_values.read_learned(Path(config.agent.dir))
        data.episodes = metric_files.read_episodes(config.agent.dir)
        data.paid_rows = list(paid_texts.read(Path(config.agent.dir)))
        reward = run_folder.read_config(config.agent.dir).get("reward", {})
        if paid_texts.pays_each_time(
            reward.get("intrinsic_coefficient", 0), reward.get("count_exponent", 3)
        ):
            data.standstill = paid_texts.standstill(data.paid_rows)
        data.probes = probe_report.read(config.agent.dir)
        data.recorded = recorded_games.read_recorded(config.agent.dir)
        data.recorded_players = recorded_games.players(folders_of(config.replays), workdir)
    if config.language.dir:
        data.language = metric_files.read_curves(config.language.dir)
    if config.text.dir:
        data.text = metric_files.read_curves(config.text.dir)


def _read_evaluations(data: RunData, config: ReportConfig, workdir: Path) -> None:
    """Reads evaluations and yardsticks; the first one's games can be watched."""
    evaluations = folders_of(config.evaluations)
    yardsticks = folders_of(config.yardsticks)
    for folder in evaluations:
        _add_evaluation(data, folder)
    for folder in yardsticks:
        data.yardsticks.append(_add_evaluation(data, folder))
    if not evaluations and not yardsticks:
        return
    first = [*evaluations, *yardsticks][0]
    for path in sorted((first / "recordings").glob("episode-*.html")):
        digits = path.stem.removeprefix("episode-")
        if checks.is_natural(digits):  # another file is the user's own
            data.replays.append((str(int(digits)), recorded_games.link(path, workdir)))
    tokens = first / _TOKENS
    if tokens.is_file():
        data.games_page = recorded_games.link(tokens, workdir)


def _add_evaluation(data: RunData, folder: Path) -> str:
    """Adds an evaluation under the name that is returned."""
    evaluation = evaluation_files.read_evaluation(folder)
    name = evaluation_name(evaluation["plan"], data.evaluations)
    if text_section.is_text(evaluation):
        # One agent that speaks may decode in several ways: the folder's name says which.
        name = _distinct_name(folder.name.removeprefix("evaluate_"), data.evaluations)
    data.evaluations[name] = evaluation
    data.message_tallies[name] = evaluation_files.read_messages(folder)
    data.provenance += run_report.provenance_of(folder, f"evaluation {name}")
    data.commands += run_report.command_of(folder, f"evaluation {name}")
    return name


def _write(config: ReportConfig, workdir: Path, data: RunData) -> Path:
    """Writes the page and its files, and returns the page's path."""
    lines = run_report.lines(data)
    sections = run_report.sections(data)
    path = page.write(workdir, "report", data.title, lines, sections, config.plots)
    atomic_write_json(workdir / "report.json", run_report.as_json(data))
    return path


def _print(data: RunData, path: Path) -> None:
    text, _ = headline(data)
    print(printable(text))
    print(f"report: {path}")
    if len(data.evaluations) > 1:
        # Last, below what long stages have printed.
        header, cells = evaluation_sections.comparison(data)
        levels = {
            f"{100 * evaluation['confidence']:g} %" for evaluation in data.evaluations.values()
        }
        note = f"means; brackets: {' and '.join(sorted(levels))} intervals"
        text_tables.show(header, cells, " beside ".join(data.evaluations), note)


def evaluation_name(plan: Mapping[str, Any], taken: Container[str]) -> str:
    """'random', 'fixed shares', 'bot', 'agent', 'before training', what is exchanged, or the
    folder's name if that name is taken.
    """
    policy = plan["policy"]
    change = (plan.get("options") or {}).get("change")
    if policy in _PLAYERS:
        name = _PLAYERS[policy]
    elif change in EXCHANGED:
        name = EXCHANGED[change]
    elif plan.get("checkpoint") == 0:
        name = "before training"
    else:
        name = "agent"
    return _distinct_name(Path(policy).name if name in taken else name, taken)


def _distinct_name(name: str, taken: Container[str]) -> str:
    """`name`, with the first number that makes it differ from those that are taken; in brackets
    where it ends with a number.
    """
    distinct = name
    number = 2
    while distinct in taken:
        distinct = f"{name} ({number})" if name[-1:].isdigit() else f"{name} {number}"
        number += 1
    return distinct


def _facts(dataset: PairsDataset) -> dict[str, str]:
    facts = {"pairs": f"{dataset.num_pairs:,}", "steps per sub-sequence": str(dataset.length)}
    for key, value in dataset.meta.items():
        if isinstance(value, str | int | float):
            facts[key.replace("_", " ")] = f"{value:,}" if isinstance(value, int) else str(value)
    return facts
