"""Evaluates an agent or a policy in a text task: seeded episodes, many at a time, then tables with intervals and a page."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, atomic_write_text, read_json
from motif_jax.core.interruption import EXIT_CODE, Interruption
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.dialogues import parquet
from motif_jax.ilql.dialogues.dialogue import Dialogues
from motif_jax.ilql.evaluation import recorded_texts, text_episodes, text_setup
from motif_jax.ilql.evaluation.config import EvaluatedSpeaker
from motif_jax.ilql.tasks import registry
from motif_jax.play import evaluation_files
from motif_jax.play.evaluation_files import Journal
from motif_jax.play.journal import FAILED, play_missing
from motif_jax.reports import evaluation_tables, text_games_page
from motif_jax.schema import read_section

IDENTITY = "seed agent policy task options data decode token_reward show dtype".split()
PLAN, PAGE, DIALOGUES, LOG = "plan.json", "tokens.html", "dialogues.parquet", "eval_log.pkl"
_Played = tuple[dict[str, Any], list[dict[str, Any]]]  # the plan, and the rows of what was played by index


def check(config: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config, IDENTITY, free=registry.FREE_OPTIONS)
    speaker = read_section(EvaluatedSpeaker, config)
    (recorded_texts if recorded_texts.wanted(speaker) else text_setup).check(speaker)


def run(config: ConfigDict, workdir: Path) -> int | None:
    with Interruption() as stop, run_folder.opened(workdir, config, IDENTITY, registry.FREE_OPTIONS):
        with Journal(workdir) as journal:
            plan, rows = _play(config, workdir, journal, stop)
        if len(rows) < plan.get("dialogues", config.episodes):
            return EXIT_CODE
        _write(config, workdir, plan, rows)
        return None


def _play(config: ConfigDict, workdir: Path, journal: Journal, stop: Interruption) -> _Played:
    speaker = read_section(EvaluatedSpeaker, config)
    if recorded_texts.wanted(speaker):
        return _look(config, workdir, journal)
    setup = text_setup.open_setup(speaker)
    _pin(workdir, setup.plan)
    count, known_failures = config.episodes, 0
    missing = [index for index in range(count) if index not in journal.done]

    def row_of(episode: text_episodes.PlayedText) -> dict[str, Any]:
        nonlocal known_failures
        row = setup.row(episode, config.seed, episode.index < config.show)
        failures, known_failures = setup.task.failures() - known_failures, setup.task.failures()
        return {**row, FAILED: failures} if failures else row

    title = f"evaluate {setup.plan['policy']}"
    drawn = setup.task, setup.actor, config.seed, missing, config.lanes, config.threads, stop
    rows = play_missing(journal, count, title, lambda _: text_episodes.play(*drawn), row_of, "actions")
    return setup.plan, rows


def _look(config: ConfigDict, workdir: Path, journal: Journal) -> _Played:
    saved = agent_folder.load(config.agent, dtype=config.dtype)
    reader = saved.network, saved.tokenizer
    dialogues = recorded_texts.dialogues_of(config.agent, config.data, *reader, config.episodes)
    plan = {
        "environment": saved.task_name,
        "options": dict(saved.options),
        "seed": config.seed,
        **text_setup.agent_plan(config.agent, saved),
        "decode": None,
        "data": config.data or "held out by the training",
        "dialogues": len(dialogues),
    }
    _pin(workdir, plan)
    for row in journal.rows:
        index, before = row["index"], text_games_page.dialogue_of(row)
        if index < len(dialogues) and before != dialogues[index]._replace(meta=before.meta):
            raise UserError(
                f"config.data={config.data}: the file changed since {workdir} started (dialogue {index} differs): choose another --workdir"
            )
    missing = [index for index in range(len(dialogues)) if index not in journal.done]
    title = f"look at {config.agent}"
    count, given = len(dialogues), (saved, dialogues, missing, config.show)
    rows = play_missing(journal, count, title, lambda _: recorded_texts.rows(*given), dict, "actions")
    return plan, rows


def _pin(workdir: Path, plan: Mapping[str, Any]) -> None:
    path = workdir / PLAN
    if path.exists():
        before = read_json(path, "restore a copy of it, or evaluate into another --workdir")
        if before.get("digest") != plan["digest"]:
            raise UserError(
                f"config.agent={plan['policy']}: was trained again since {workdir} started: choose another --workdir"
            )
    atomic_write_json(path, dict(plan))


def _write(
    config: ConfigDict, workdir: Path, plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> None:
    summary, summaries = evaluation_tables.summarise(plan, rows, config.resamples, config.confidence)
    summary[FAILED] = sum(row.get(FAILED, 0) for row in rows)
    if (ranked := recorded_texts.ranking(rows)) and plan.get("data"):
        summary["ranking"] = ranked
    dialogues = Dialogues.of(text_games_page.dialogue_of(row) for row in rows)
    parquet.write(workdir / DIALOGUES, [dialogues], {"origin": "motif_jax evaluate_text", "plan": dict(plan)})
    plain = [{k: v for k, v in row.items() if k not in ("dialogue", "tokens", FAILED)} for row in rows]
    evaluation_files.write_parquet(workdir / evaluation_files.TABLE, plain)
    if config.published_log:
        from motif_jax.published import evaluation_logs

        evaluation_logs.write(workdir / LOG, rows, run_folder.as_plain(config))
    if config.show:
        atomic_write_text(workdir / PAGE, text_games_page.render(rows[: config.show], plan))
    evaluation_files.write_summary(workdir, summary, rows)
    evaluation_tables.show(workdir, summary, summaries, "actions")
    if cut := sum(row.get("actions_cut", 0) for row in rows):
        share, most = cut / summary["steps"], plan["decode"]["max_tokens"]
        told = f"{share:.1%} of the actions were cut at config.decode.max_tokens={most}: give more"
        print(told, file=sys.stderr)
    print(f"written: {workdir / evaluation_files.SUMMARY}, {evaluation_files.TABLE}, {DIALOGUES}, table.md")
