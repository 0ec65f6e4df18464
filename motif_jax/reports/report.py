"""The stage `report`: reads the folders of a run's stages, and writes one page about them, with
tables and charts as files and all numbers as JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import metric_files, run_folder
from motif_jax.core.errors import printable
from motif_jax.core.files import atomic_write_json, finite, read_json
from motif_jax.display import html, measures, page, text_tables
from motif_jax.display.charts import short
from motif_jax.display.page import Section, Table
from motif_jax.envs.babyai_text.changes import EXCHANGED
from motif_jax.glam import generalisation_files
from motif_jax.motif.annotation.labels import counts
from motif_jax.motif.pairs.dataset import PairsDataset, open_datasets
from motif_jax.play import evaluation_files
from motif_jax.reports import (
    evaluation_sections,
    hacking,
    learned_reward,
    probe_report,
    recorded_games,
    reward_sections,
    training_sections,
)
from motif_jax.reports.config import ReportConfig
from motif_jax.reports.evaluation_sections import MeasureRow, is_text, rows_of
from motif_jax.reports.headline import are_of_text, compared, headline, task_alone
from motif_jax.reports.run_data import (
    RunData,
    command_of,
    provenance_of,
    provenance_section,
)
from motif_jax.rl import paid_texts
from motif_jax.rl.actors.policies import BOT, FIXED, RANDOM
from motif_jax.schema import read_section

_TOKENS = "tokens.html"
# Key -> the stage whose run its folder is.
STAGES = {
    "reward.dir": "train_reward",
    "agent.dir": "train_agent",
    "language.dir": "pretrain_language_model",
    "text.dir": "train_text",
}
_PLAYERS = {FIXED: "fixed shares", RANDOM: RANDOM, BOT: BOT}


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree)
    config = read_section(ReportConfig, config_tree)
    for key, stage in STAGES.items():
        folder = checks.dotted(config, key)
        if folder:
            actual = run_folder.read_config(folder).get("stage")
            # The page would show the metrics of another stage under the titles of this one.
            allowed = f"a run of {stage}; it is one of {actual}"
            checks.require(actual == stage, key, folder, allowed)


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    """Reads the folders and writes the page; returns 1 if `config.first_must_lead` and the first
    evaluation does not lead.
    """
    config = read_section(ReportConfig, config_tree)
    # Before the folder is made, so that what cannot be read leaves none.
    data = _read(config, workdir)
    with run_folder.opened(workdir, config_tree):
        path = page.write(workdir, "report", data.title, lines(data), sections(data), config.plots)
        atomic_write_json(workdir / "report.json", as_json(data))
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
        data.commands += command_of(folder, f"tests of {tests['player']}")
    _read_evaluations(data, config, workdir)
    data.progress = _progress(data, config)
    sources = [("dataset", folder) for folder in folders_of(config.dataset_dir or "")]
    for key in STAGES:
        folder_name = checks.dotted(config, key)
        if folder_name:
            sources.append((key.removesuffix(".dir"), Path(folder_name)))
    for name, folder in sources:
        data.provenance += provenance_of(folder, name)
        data.commands += command_of(folder, name)
    return data


def _read_dataset_and_reward(data: RunData, config: ReportConfig) -> None:
    dataset = None
    if config.dataset_dir:
        dataset = open_datasets(folders_of(config.dataset_dir))
        data.dataset = _dataset_facts(dataset)
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
            data.liked, data.message_curves = reward_sections.liked_messages(config.reward, dataset)
        data.reward_train = metric_files.read_csv(folder / "train_metrics.csv")
        data.reward_validation = metric_files.read_csv(folder / "val_metrics.csv")
        data.reward_summary = _reward_summary(folder)
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
        data.learned = learned_reward.read(Path(config.agent.dir))
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
    if is_text(evaluation):
        # One agent that speaks may decode in several ways: the folder's name says which.
        name = _distinct_name(folder.name.removeprefix("evaluate_"), data.evaluations)
    data.evaluations[name] = evaluation
    data.message_tallies[name] = evaluation_files.read_messages(folder)
    data.provenance += provenance_of(folder, f"evaluation {name}")
    data.commands += command_of(folder, f"evaluation {name}")
    return name


def _reward_summary(folder: Path) -> dict[str, Any]:
    """The used evaluation's numbers in a reward run's summary.json; {} without the file."""
    path = folder / "summary.json"
    remedy = "the same command that made the run writes it again"
    return read_json(path, remedy).get("used", {}) if path.exists() else {}


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


def _dataset_facts(dataset: PairsDataset) -> dict[str, str]:
    facts = {"pairs": f"{dataset.num_pairs:,}", "steps per sub-sequence": str(dataset.length)}
    for key, value in dataset.meta.items():
        if isinstance(value, str | int | float):
            facts[key.replace("_", " ")] = f"{value:,}" if isinstance(value, int) else str(value)
    return facts


def sections(data: RunData) -> list[Section]:
    """The sections of the page, in order."""
    # Parts of other kinds of runs are then not named as missing.
    is_text = are_of_text(data) or bool(data.text and not data.metrics)
    is_task_alone = task_alone(data)
    items = facts(data)
    glance: list[Any] = [html.verdict(*headline(data))]
    if items:
        glance.append(html.tiles(items))
    # The tiles as a table in files.
    glance.append(
        Table("glance-table", ("what", "value", "note"), items, in_files=True, on_page=False)
    )
    shown = [
        Section("At a glance", "glance", glance),
        evaluation_sections.evaluation_section(data),
        evaluation_sections.kinds_section(data),
        evaluation_sections.generalisation_section(data.tests),
        evaluation_sections.divergence_section(data),
        training_sections.dialogues_section(data.text),
        None if is_task_alone else reward_sections.hacking_section(data),
        None if is_text else training_sections.training_section(data),
        probe_report.section(data.probes),
        learned_reward.section(data.learned, data.metrics),
        None if is_task_alone else reward_sections.reward_section(data),
        training_sections.language_section(data.language),
        training_sections.paid_section(data.paid_rows, data.standstill),
        None if is_task_alone else reward_sections.messages_section(data),
        recorded_games.episodes_section(data),
        recorded_games.section(data),
        None if is_task_alone else reward_sections.data_section(data),
        provenance_section(data.provenance, data.commands),
    ]
    return [section for section in shown if section is not None]


def _accuracy(data: RunData) -> list[tuple[str, str, str]]:
    summary = data.reward_summary
    if "validation/accuracy" not in summary:
        # A run of the published code has no summary.
        column = data.reward_validation.get("validation_accs")
        if column is None or not len(column) or np.isnan(column[-1]):
            return []
        epochs = len(column) - 1
        note = f"pairs without ties, after {epochs} {'epoch' if epochs == 1 else 'epochs'}"
        return [("validation accuracy", f"{100 * column[-1]:.1f} %", note)]
    parts = (
        ("validation", "validation accuracy", "pairs without ties"),
        ("validation_unseen", "on new messages", "of them: both messages never trained on"),
    )
    items = []
    for part, title, meaning in parts:
        pairs = summary.get(f"{part}/accuracy_pairs", 0)
        if pairs:  # there may be none, or ties alone
            items.append(
                (title, f"{100 * summary[f'{part}/accuracy']:.1f} %", f"{pairs:,.0f} {meaning}")
            )
    return items


def _held_out(data: RunData) -> list[tuple[str, str, str]]:
    curves = {
        "perplexity": data.language.get("validation/perplexity"),
        "held-out loss": data.text.get("validation/loss"),
    }
    items = []
    for title, curve in curves.items():
        if curve is None:
            continue
        finite = np.flatnonzero(np.isfinite(curve.y))
        if not len(finite):
            continue
        best = finite[np.argmin(curve.y[finite])]
        last = finite[-1]
        note = f"at step {int(curve.x[last]):,}; best {curve.y[best]:.4g} at step {int(curve.x[best]):,}"
        items.append((title, f"{curve.y[last]:.4g}", note))
    return items


def facts(data: RunData) -> list[tuple[str, str, str]]:
    """The numbers at the top of the page: (name, value, note)."""
    items = []
    if "pairs" in data.dataset:
        items.append(("preference pairs", data.dataset["pairs"], data.dataset.get("origin", "")))
    items += _accuracy(data)
    steps = max((curve.x[-1] for curve in data.metrics.values() if len(curve)), default=None)
    if steps is not None:
        items.append(("training steps", short(float(steps)), "steps of the environments"))
    items += _held_out(data)
    for name, evaluation in data.evaluations.items():
        unit = "actions" if is_text(evaluation) else "steps"
        speed = f"{evaluation['steps']:,} {unit}, {evaluation['steps_per_second']:,.0f} {unit}/s"
        items.append((f"episodes of {name}", f"{evaluation['episodes']:,}", speed))
    return items


def lines(data: RunData) -> list[str]:
    """The verdicts in words."""
    return [headline(data)[0], *(verdict.line for verdict in _verdicts(data))]


def _verdicts(data: RunData) -> list[hacking.Verdict]:
    return [] if task_alone(data) else hacking.judge_run(data)


def as_json(data: RunData) -> dict[str, Any]:
    """The report as plain data with unrounded numbers; None for missing values."""
    text, kind = headline(data)
    rows = rows_of(data)
    first = next(iter(data.evaluations), "")
    differences = []
    for row in rows:
        for other, (gap, chance) in row.against.items():
            names = {"first": first, "other": other, "measure": row.measure.key}
            differences.append({**names, **asdict(gap), "better_episode": chance})
    progress = []
    for verdict in _verdicts(data):
        changes = [change._asdict() for change in verdict.changes]
        progress.append({**verdict._asdict(), "changes": changes})
    return finite(
        {
            "title": data.title,
            "headline": {"text": text, "kind": kind},
            "facts": [
                dict(zip(("what", "value", "note"), fact, strict=True)) for fact in facts(data)
            ],
            "evaluations": _evaluations_as_json(data, rows),
            "differences": differences,
            "progress": progress,
            "dataset": data.dataset,
            "labels": data.labels,
        }
    )


def _evaluations_as_json(data: RunData, rows: list[MeasureRow]) -> dict[str, Any]:
    evaluations = {}
    for name, evaluation in data.evaluations.items():
        fields = {
            key: evaluation[key] for key in ("plan", "episodes", "steps", "confidence", "intervals")
        }
        measures = {
            row.measure.key: asdict(row.summaries[name]) for row in rows if name in row.summaries
        }
        evaluations[name] = {**fields, "measures": measures}
    return evaluations


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
