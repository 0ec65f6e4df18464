"""Ranks utterances by the values of agents, and measures whether the values rank an expert's
actions first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json
from motif_jax.core.progress import Progress
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.dialogues import files
from motif_jax.ilql.dialogues.dialogue import Dialogues
from motif_jax.ilql.evaluation import ranking_tables, text_values
from motif_jax.ilql.evaluation.config import RankTextConfig
from motif_jax.ilql.tasks import registry
from motif_jax.schema import read_section

FILE = "ranks.json"


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree)
    config = read_section(RankTextConfig, config_tree)
    agents = checks.listed(config.agents)
    checks.require_key(
        config, "agents", bool(agents), "run folders of train_text, with commas between"
    )
    checks.require_key(
        config, "data", bool(config.data), "a file of dialogues, or a folder of collect_text"
    )
    abouts = [agent_folder.describe(folder, "agents") for folder in agents]
    for folder, about in zip(agents, abouts, strict=True):
        design = agent_folder.Design(**about["design"])
        if design.q != "token" or not design.v:
            raise UserError(
                f"config.agents={folder}: must have values of tokens, method {about['method']} has none"
            )
    if len({about["vocabulary"] for about in abouts}) > 1:
        raise UserError(f"config.agents={config.agents}: must be of one vocabulary")
    dialogues = read_dialogues(config)
    for about in abouts:
        tokenizer = registry.make(about["task"], agent_folder.options_of(about)).tokenizer()
        network = agent_folder.network_of(about)
        text_values.require_fit(network, tokenizer, dialogues, f"config.data={config.data}")


def run(config_tree: ConfigDict, workdir: Path) -> None:
    config = read_section(RankTextConfig, config_tree)
    with run_folder.opened(workdir, config_tree):
        dialogues = read_dialogues(config)
        pairs = text_values.pairs_of(dialogues)
        of_agents: dict[str, Any] = {}
        for folder in checks.listed(config.agents):
            saved = agent_folder.load(folder, "agents")
            valued: list[text_values.ValuedDialogue] = []
            with Progress(len(dialogues), "dialogues", f"value by {folder}") as progress:
                for dialogue in text_values.values_of(saved, dialogues):
                    valued.append(dialogue)
                    progress.update(len(valued))
            lists = {
                "utterances": text_values.utterances(valued),
                f"{config.n_gram}-grams": text_values.n_grams(
                    valued, saved.tokenizer, config.n_gram
                ),
            }
            of_agents[folder] = {
                "method": saved.method,
                "dialogues": len(valued),
                "accuracy": text_values.ranking_accuracy(valued, pairs, config.tokens),
                "lists": {name: _ends(ranked, config) for name, ranked in lists.items()},
            }
        atomic_write_json(workdir / FILE, of_agents)
        print(ranking_tables.terminal_text(of_agents))
        print(f"written: {workdir / FILE}")


def read_dialogues(config: RankTextConfig) -> Dialogues:
    """The first dialogues, and those of the last one's group."""
    dialogues = files.read(files.find(config.data or "", "data"))
    end = min(config.dialogues, len(dialogues))
    if end == 0:
        return dialogues[:0]
    # Pairs of an expert's game and its branches are within a group.
    group = dialogues[end - 1].meta.get("group")
    while group is not None and end < len(dialogues) and dialogues[end].meta.get("group") == group:
        end += 1
    return dialogues[:end]


def _ends(
    ranked: Sequence[text_values.RankedUtterance], config: RankTextConfig
) -> Mapping[str, list[dict[str, Any]]]:
    """The first and the last of those that occur often enough."""
    frequent = [
        utterance._asdict() for utterance in ranked if utterance.times >= config.least_count
    ]
    # The least first, so that both lists begin with their extreme.
    return {"greatest": frequent[: config.shown], "least": frequent[::-1][: config.shown]}
