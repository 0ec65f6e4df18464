"""Evaluates agents that speak, as `config.kind` says: by seeded episodes of a text task, many at a
time, with tables of intervals and a page; by recorded dialogues, whose texts their values rank; or
in games with a person at the terminal.

`write_published_log` writes the episodes in the layout of published ILQL logs, which
`published.results` reads: a pickle {all_logs, eval_dump {results, entropies}, config} of
plain containers and numbers.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_bytes, atomic_write_json, atomic_write_text, read_json
from motif_jax.core.interruption import EXIT_CODE, Interruption
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.config import EvaluateTextConfig
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.dialogues.dialogue import Dialogues
from motif_jax.ilql.evaluation import (
    recorded_texts,
    text_episodes,
    text_games_page,
    text_ranks,
    text_setup,
    text_terminal,
)
from motif_jax.ilql.tasks import registry
from motif_jax.play import evaluation_files, evaluation_tables
from motif_jax.play.evaluation_files import Journal
from motif_jax.play.journal import FAILED, play_missing
from motif_jax.schema import read_section

# Of episodes and recorded dialogues. Ranks are written again with any keys, and games at the
# terminal are added to those that were played with others.
IDENTITY = (
    "kind",
    "seed",
    "agent",
    "policy",
    "task",
    "options",
    "data",
    "decode",
    "token_reward",
    "show",
    "dtype",
)
PLAN, PAGE = "plan.json", "tokens.html"
# rows of episodes or dialogues, by index
_PlanAndRows = tuple[dict[str, Any], list[dict[str, Any]]]
PUBLISHED_LOG = "eval_log.pkl"


def _identity(config: EvaluateTextConfig) -> Sequence[str]:
    return IDENTITY if config.kind == "episodes" else ("kind",)


def check(config_tree: ConfigDict, workdir: Path) -> None:
    config = read_section(EvaluateTextConfig, config_tree)
    run_folder.check_identity(workdir, config_tree, _identity(config), free=registry.FREE_OPTIONS)
    if config.kind == "rank":
        text_ranks.check(config)
    elif config.kind == "play":
        text_terminal.check(config)
    elif recorded_texts.replace_episodes(config):
        recorded_texts.check(config)
    else:
        text_setup.check(config)


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    config = read_section(EvaluateTextConfig, config_tree)
    folder = run_folder.opened(workdir, config_tree, _identity(config), registry.FREE_OPTIONS)
    if config.kind == "rank":
        with folder:
            text_ranks.write(config, workdir)
        return None
    if config.kind == "play":
        setup = text_setup.open_setup(config)
        with folder:
            text_terminal.play_games(config, setup, workdir)
        return None
    with Interruption() as stop, folder:
        with Journal(workdir) as journal:
            plan, rows = _play(config, workdir, journal, stop)
        # Stopped before the last episode; the same command goes on.
        if len(rows) < plan.get("dialogues", config.episodes):
            return EXIT_CODE
        if config.published_log:
            write_published_log(workdir / PUBLISHED_LOG, rows, run_folder.as_plain(config_tree))
        _write(config, workdir, plan, rows)
        return None


def _play(
    config: EvaluateTextConfig, workdir: Path, journal: Journal, stop: Interruption
) -> _PlanAndRows:
    """Plays the episodes that the journal lacks."""
    if recorded_texts.replace_episodes(config):
        return _read_recorded(config, workdir, journal)
    setup = text_setup.open_setup(config)
    _pin(workdir, setup.plan)
    missing = [index for index in range(config.episodes) if index not in journal.done]
    failures_before = 0

    def episodes(_: Any) -> Iterator[text_episodes.PlayedText]:
        return text_episodes.play(
            setup.task, setup.actor, config.seed, missing, config.lanes, config.threads, stop
        )

    def row_of(episode: text_episodes.PlayedText) -> dict[str, Any]:
        nonlocal failures_before
        row = setup.row(episode, config.seed, episode.index < config.show)
        failures = setup.task.failures()
        if failures > failures_before:
            # Requests that failed since the row before, of whichever episode.
            row[FAILED] = failures - failures_before
        failures_before = failures
        return row

    title = f"evaluate {setup.plan['policy']}"
    rows = play_missing(journal, config.episodes, title, episodes, row_of, "actions")
    return setup.plan, rows


def _read_recorded(config: EvaluateTextConfig, workdir: Path, journal: Journal) -> _PlanAndRows:
    """Runs the recorded dialogues that the journal lacks through the agent."""
    agent = config.agent or ""
    saved = agent_folder.load(agent, dtype=config.dtype)
    dialogues, too_long = recorded_texts.dialogues_of(
        saved.about, agent, config.data, saved.network, saved.tokenizer, config.episodes
    )
    if too_long:
        positions = saved.network.model.config.max_length
        print(
            f"left out, since their actions go beyond the agent's {positions:,} positions: {too_long:,} of the dialogues"
        )
    plan = {
        "environment": saved.task_name,
        "options": dict(saved.options),
        "seed": config.seed,
        **text_setup.agent_plan(agent, saved),
        "decode": None,
        "data": config.data or "held out by the training",
        "dialogues": len(dialogues),
    }
    _pin(workdir, plan)
    # A journal of an earlier start: its dialogues must be those of the file now.
    for row in journal.rows:
        index = row["index"]
        before = text_games_page.dialogue_of(row)
        # But for `meta`, which a row does not keep.
        if index < len(dialogues) and before != dialogues[index]._replace(meta=before.meta):
            raise UserError(
                f"config.data={config.data}: the file changed since {workdir} started (dialogue {index} differs): choose another --workdir"
            )
    missing = [index for index in range(len(dialogues)) if index not in journal.done]

    def missing_rows(_: Any) -> Iterator[dict[str, Any]]:
        return recorded_texts.rows(saved, dialogues, missing, config.show)

    title = f"look at {agent}"
    rows = play_missing(journal, len(dialogues), title, missing_rows, dict, "actions")
    return plan, rows


def _pin(workdir: Path, plan: Mapping[str, Any]) -> None:
    """Writes plan.json; UserError where a journal of another agent, or of other games, is in the
    folder.
    """
    path = workdir / PLAN
    if path.exists():
        before = read_json(path, "restore a copy of it, or evaluate into another --workdir")
        if before["digest"] != plan["digest"]:
            raise UserError(
                f"config.agent={plan['policy']}: was trained again since {workdir} started: choose another --workdir"
            )
        # As the file gives it back, with lists for tuples. Plans of recorded dialogues have none.
        games = json.loads(json.dumps(plan.get("drawn_from")))
        if before.get("drawn_from") != games:
            raise UserError(
                f"config.task={plan['environment']}: its options or files changed since {workdir} started: choose another --workdir"
            )
    atomic_write_json(path, dict(plan))


def _write(
    config: EvaluateTextConfig,
    workdir: Path,
    plan: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
) -> None:
    summary, summaries = evaluation_tables.summarise(plan, rows)
    summary[FAILED] = sum(row.get(FAILED, 0) for row in rows)
    ranking = recorded_texts.ranking(rows)
    if ranking and plan.get("data"):
        summary["ranking"] = ranking
    dialogues = Dialogues.of(text_games_page.dialogue_of(row) for row in rows)
    dialogue_files.write(
        workdir / dialogue_files.DIALOGUES,
        [dialogues],
        {"origin": "motif_jax evaluate_text", "plan": dict(plan)},
    )
    # Dialogues have a file and tokens a page of their own.
    plain = [
        {k: v for k, v in row.items() if k not in ("dialogue", "tokens", FAILED)} for row in rows
    ]
    evaluation_files.write_parquet(workdir / evaluation_files.TABLE, plain)
    if config.show:
        atomic_write_text(workdir / PAGE, text_games_page.render(rows[: config.show], plan))
    evaluation_files.write_summary(workdir, summary, rows)
    evaluation_tables.show(workdir, summary, summaries, "actions")
    cut = sum(row.get("actions_cut", 0) for row in rows)
    if cut:
        share = cut / summary["steps"]
        max_tokens = plan["decode"]["max_tokens"]
        print(
            f"{share:.1%} of the actions were cut at config.decode.max_tokens={max_tokens}: give more",
            file=sys.stderr,
        )
    print(
        f"written: {workdir / evaluation_files.SUMMARY}, {evaluation_files.TABLE}, {dialogue_files.DIALOGUES}, table.md"
    )


def write_published_log(
    path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any]
) -> None:
    """Writes rows of an evaluation's journal; an entropy or divergence that was not measured is 0,
    as published.
    """
    results: list[Any] = []
    entropies: list[float] = []
    for row in rows:
        texts = row["dialogue"]["texts"]
        rewards = row["dialogue"]["rewards"]
        actions = [index for index, reward in enumerate(rewards) if reward is not None]
        # A step: (observation, action, reward, end).
        steps = [
            (tuple(texts[:index]), texts[index], float(rewards[index]), index == actions[-1])
            for index in actions
        ]
        results.append((tuple(texts), steps))
        entropies.append(float(row.get("entropy") or 0.0))
    log = {
        "all_logs": {
            "env_reward": float(np.mean([row["return"] for row in rows])),
            "token_reward": float(
                np.mean([row.get("token_return", row["return"]) for row in rows])
            ),
            "kl": float(np.mean([row.get("divergence") or 0.0 for row in rows])),
        },
        "eval_dump": {"results": results, "entropies": entropies},
        "config": dict(config),
    }
    atomic_write_bytes(Path(path), pickle.dumps(log, protocol=4))
