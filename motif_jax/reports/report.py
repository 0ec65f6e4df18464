"""Writes one HTML page about a run from the folders of its stages."""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import metric_files, run_folder
from motif_jax.core.distinct import distinct_rows
from motif_jax.core.errors import printable
from motif_jax.core.files import atomic_write_json
from motif_jax.core.metric_files import Curve
from motif_jax.core.sections import Scoring
from motif_jax.display import page, text_tables
from motif_jax.envs.babyai_text.changes import EXCHANGED
from motif_jax.motif.annotation.labels import counts
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.play import evaluation_files, messages
from motif_jax.play.policies import BOT, FIXED, RANDOM
from motif_jax.reports import (
    evaluation_sections,
    generalisation_files,
    learned_reward,
    probes,
    recorded_games,
    run_report,
    success,
    text_section,
)
from motif_jax.reports.glance import headline
from motif_jax.reports.learned_reward import LabelLogReport, LearnedText
from motif_jax.reports.run_data import LikedMessage, RunData, read_reward_summary
from motif_jax.schema import read_section

_TOKENS = "tokens.html"
MAX_EVALUATIONS = 12
STAGES = {
    "reward.dir": "train_reward",
    "agent.dir": "train_agent",
    "language.dir": "pretrain_language_model",
    "text.dir": "train_text",
}
FOLDERS = ("dataset_dir", *STAGES)


def check(config: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config)
    given = [key for key in FOLDERS if checks.dotted(config, key)]
    for key in given:
        folder = checks.existing_folder(config, key)
        if key in STAGES:
            stage = run_folder.read_config(folder).get("stage") if (folder / "config.json").exists() else None
            found = f"it is one of {stage}" if stage else "it has no config.json"
            checks.require(stage == STAGES[key], key, str(folder), f"a run of {STAGES[key]}; {found}")
    if config.dataset_dir:
        PairsDataset.open(config.dataset_dir)
    evaluations = folders_of(config.evaluations)
    finished = (evaluation_files.SUMMARY, "a finished evaluation")
    replays = ("step-*.html", "a folder with players (step-*.html) made by replay")
    needed = {"replays": replays, "evaluations": finished, "yardsticks": finished}
    for key, (files, allowed) in needed.items():
        for folder in folders_of(config[key]):
            checks.require(any(folder.glob(files)), key, str(folder), allowed)
    some = f"given, or one of {', '.join(FOLDERS)}, evaluations"
    checks.require(bool(given or evaluations), "agent.dir", None, some)
    for folder in folders_of(config.tests):
        generalisation_files.read(folder)
    if config.first_must_lead:
        read = [evaluation_files.read_evaluation(folder) for folder in evaluations]
        alike = all(map(text_section.is_text, read)) or all(map(success.is_of_babyai, read))
        allowed = "False unless evaluations names two or more of BabyAI-Text, or of text tasks"
        checks.require(alike and len(read) > 1, "first_must_lead", True, allowed)


def folders_of(text: str) -> list[Path]:
    return list(map(Path, checks.listed(text)))


def run(config: ConfigDict, workdir: Path) -> int | None:
    """Reads the folders and writes the page; returns 1 if `config.first_must_lead` and the first evaluation does not lead."""
    data = RunData(title=config.title, lead=config.lead)
    if config.dataset_dir:
        dataset = PairsDataset.open(config.dataset_dir)
        data.dataset = _facts(dataset)
        data.labels = {name: counts(dataset.preference(name)) for name in dataset.preference_names()}
    if config.reward.dir:
        from motif_jax.motif.reward.reward_model import read_architecture

        folder = Path(config.reward.dir)
        architecture = read_architecture(folder)[0]
        data.reward_reads = () if architecture.message_only else architecture.fields
        if config.dataset_dir and not data.reward_reads:
            data.liked = liked_messages(config, dataset, data)
        data.reward_train = metric_files.read_csv(folder / "train_metrics.csv")
        data.reward_validation = metric_files.read_csv(folder / "val_metrics.csv")
        data.reward_summary = read_reward_summary(folder)
    if config.agent.dir:
        data.metrics = metric_files.read_metrics(config.agent.dir)
        data.learned = learned(Path(config.agent.dir))
        data.episodes = metric_files.read_episodes(config.agent.dir)
        data.probes = probes.read(config.agent.dir)
        data.recorded = recorded_games.read_recorded(config.agent.dir)
        data.recorded_players = recorded_games.players(folders_of(config.replays), workdir)
    if config.language.dir:
        data.language = metric_files.read_metrics(config.language.dir)
    if config.text.dir:
        data.text = metric_files.read_metrics(config.text.dir)
    for folder in folders_of(config.tests):
        found = generalisation_files.read(folder)
        data.tests[_other(found["player"], data.tests)] = found
        data.commands += run_report.command_of(folder, f"tests of {found['player']}")
    evaluations, yardsticks = folders_of(config.evaluations), folders_of(config.yardsticks)
    for folder in evaluations:
        _add_evaluation(data, folder)
    judged = list(data.evaluations)
    for folder in yardsticks:
        _add_evaluation(data, folder)
    data.yardsticks = [name for name in data.evaluations if name not in judged]
    for folder in [*evaluations, *yardsticks][:1]:
        films = sorted((folder / "recordings").glob("episode-*.html"))
        numbers = [str(int(path.stem.removeprefix("episode-"))) for path in films]
        links = [recorded_games.link(path, workdir) for path in films]
        data.replays, tokens = list(zip(numbers, links, strict=True)), folder / _TOKENS
        data.games_page = recorded_games.link(tokens, workdir) if tokens.is_file() else None
    for key in FOLDERS:
        if folder_name := checks.dotted(config, key):
            name = key.removesuffix(".dir").removesuffix("_dir")
            data.provenance += run_report.provenance_of(folder_name, name)
            data.commands += run_report.command_of(folder_name, name)
    with run_folder.opened(workdir, config):
        _write(config, workdir, data)
    if config.first_must_lead and headline(data)[1] != "good":
        others = ", ".join(judged[1:])
        print(f"it does not hold: {judged[0]} is not clearly better than {others}", file=sys.stderr)
        return 1
    return None


def _add_evaluation(data: RunData, folder: Path) -> None:
    evaluation = evaluation_files.read_evaluation(folder)
    name = _evaluation_name(evaluation["plan"], data.evaluations)
    if text_section.is_text(evaluation):
        # Of who speaks the folder's name says more: one agent may decode in several ways.
        name = _other(folder.name.removeprefix("evaluate_"), data.evaluations)
    data.evaluations[name] = evaluation
    data.seen[name] = evaluation_files.read_messages(folder)
    data.provenance += run_report.provenance_of(folder, f"evaluation {name}")
    data.commands += run_report.command_of(folder, f"evaluation {name}")


def _write(config: ConfigDict, workdir: Path, data: RunData) -> None:
    lines, sections = run_report.lines(data), run_report.sections(data)
    path = page.write(workdir, "report", data.title, lines, sections, config.plots)
    atomic_write_json(workdir / "report.json", run_report.as_json(data))
    print(printable(headline(data)[0]))
    print(f"report: {path}")
    if len(data.evaluations) > 1:  # last, below what long stages have printed
        header, cells = evaluation_sections.comparison(data)
        levels = {f"{100 * evaluation['confidence']:g} %" for evaluation in data.evaluations.values()}
        note = f"means; brackets: {' and '.join(sorted(levels))} intervals"
        text_tables.show(header, cells, " beside ".join(data.evaluations), note)


def _evaluation_name(plan: Mapping[str, Any], taken: Container[str]) -> str:
    """'random', 'fixed shares', 'bot', 'agent', 'before training', what is exchanged, or the folder's name if that name is taken."""
    policy = plan["policy"]
    name = {FIXED: "fixed shares", RANDOM: RANDOM, BOT: BOT}.get(policy, "agent")
    if name == "agent":
        name = EXCHANGED.get((plan.get("options") or {}).get("change") or "", name)
    if name == "agent" and plan.get("checkpoint") == 0:
        name = "before training"
    return _other(Path(policy).name if name in taken else name, taken)


def _other(name: str, taken: Container[str]) -> str:
    number = 2
    while name in taken:
        name, number = f"{name.rstrip('0123456789 ')} {number}", number + 1
    return name


def learned(folder: Path) -> LabelLogReport | None:
    """The labels that an online reward learned, valued at the run's checkpoints; None for any other reward."""
    from motif_jax.motif.reward import reward_function
    from motif_jax.motif.reward.reward_model import saved_steps
    from motif_jax.oni import online_model

    config = run_folder.read_config(folder)
    kind = config.get("reward", {}).get("kind")
    found = learned_reward.read(folder, kind) if kind in online_model.KINDS else None
    if found is None or not (steps := saved_steps(folder)):
        return found
    loaded = [reward_function.load(folder, step) for step in steps[-MAX_EVALUATIONS:]]
    earned: dict[str, float] = loaded[-1].trained.earned  # type: ignore[attr-defined]
    known = {text.text for text in found.texts}
    others = (text for text, paid in earned.items() if paid and text not in known)
    found.texts += [LearnedText(text, None, None, "") for text in others]
    if not found.texts:
        return found
    names = [text.text for text in found.texts]
    values = np.stack([reward.intrinsic(names) for reward in loaded], axis=1)
    found.checkpoints = tuple(reward.trained.step for reward in loaded)
    least = config["reward"]["classifier"]["threshold"]
    decides = kind == "classification" and loaded[-1].trained.taken  # type: ignore[attr-defined]
    decided = loaded[-1].raw(names) > least if decides else [None] * len(names)
    for place, (text, row, yes) in enumerate(zip(found.texts, values.tolist(), decided, strict=True)):
        said = None if yes is None else bool(yes)
        paid = earned.get(text.text, 0.0)
        found.texts[place] = text._replace(values=tuple(row), earned=paid, decided=said)
    return found


def liked_messages(config: ConfigDict, dataset: PairsDataset, data: RunData) -> list[LikedMessage]:
    """Rates the most frequent messages; sets `data.message_curves` to rewards over training of the extreme ones."""
    from motif_jax.motif.reward import reward_function

    every = dataset.data["message"]
    texts, ids = distinct_rows(every.reshape(-1, every.shape[-1]))
    times = np.bincount(ids.reshape(-1), minlength=len(texts))
    chosen = np.argsort(-times, kind="stable")[: config.max_messages]
    texts = texts[chosen]
    reward = reward_function.load(config.reward.dir, config.reward.step)
    normalised = reward(texts)
    scoring = read_section(Scoring, config.reward)
    paid = reward.intrinsic(texts, scoring.level, scoring.quantile)
    data.message_curves = _message_curves(config, texts, normalised)
    return [
        LikedMessage(messages.as_text(text), int(count), float(value), float(value_paid))
        for text, count, value, value_paid in zip(texts, times[chosen], normalised, paid, strict=True)
    ]


def _message_curves(config: ConfigDict, texts: np.ndarray, normalised: np.ndarray) -> dict[str, Curve]:
    from motif_jax.motif.reward import reward_function
    from motif_jax.motif.reward.reward_model import saved_steps

    steps = saved_steps(config.reward.dir)
    steps = [step for step in steps if config.reward.step is None or step <= config.reward.step]
    if len(steps) > MAX_EVALUATIONS:
        places = np.linspace(0, len(steps) - 1, MAX_EVALUATIONS).round().astype(int)
        steps = [steps[place] for place in dict.fromkeys(places.tolist())]
    order = np.argsort(-normalised, kind="stable")
    chosen = list(dict.fromkeys([*order[:3].tolist(), *order[-3:].tolist()]))
    values = np.array(
        [reward_function.load(config.reward.dir, step)(texts[chosen]) for step in steps], np.float64
    )
    names = [messages.as_text(texts[row]) or "(no message)" for row in chosen]
    return {name: Curve(np.array(steps, np.float64), values[:, i]) for i, name in enumerate(names)}


def _facts(dataset: PairsDataset) -> dict[str, str]:
    facts = {"pairs": f"{dataset.num_pairs:,}", "steps per sub-sequence": str(dataset.length)}
    for key, value in dataset.meta.items():
        if isinstance(value, str | int | float):
            facts[key.replace("_", " ")] = f"{value:,}" if isinstance(value, int) else str(value)
    return facts
