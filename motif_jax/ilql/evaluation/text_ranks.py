"""Ranks the texts of recorded dialogues by the values of agents, and measures whether the values
rank an expert's tokens first.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json
from motif_jax.core.progress import Progress
from motif_jax.display import text_tables
from motif_jax.ilql.agent import agent_folder
from motif_jax.ilql.config import EvaluateTextConfig
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.dialogues.dialogue import Dialogues
from motif_jax.ilql.dialogues.dialogue_tokens import TextTokenizer
from motif_jax.ilql.evaluation import recorded_texts
from motif_jax.ilql.evaluation.recorded_texts import ValuedDialogue
from motif_jax.ilql.tasks import registry

FILE = "ranks.json"
# Texts in the list of the greatest and in that of the least, a page each. What was said once tells
# more about its dialogue than about its words.
_SHOWN = 20
_LEAST_COUNT = 2
_ACCURACY = re.compile(r"(.+)_(q_target|q)_rank_acc_-(\d+)")


def check(config: EvaluateTextConfig) -> None:
    """Raises UserError for agents without values of tokens, and for dialogues that they cannot
    read.
    """
    agents = checks.listed(config.agent or "")
    checks.require_key(
        config, "agent", bool(agents), "run folders of train_text, with commas between"
    )
    abouts = [agent_folder.describe(folder, "agent") for folder in agents]
    for folder, about in zip(agents, abouts, strict=True):
        design = agent_folder.Design(**about["design"])
        if design.q != "token" or not design.v:
            raise UserError(
                f"config.agent={folder}: must have values of tokens, method {about['method']} has none"
            )
    dialogues = read_dialogues(config)
    for about in abouts:
        tokenizer = registry.make(about["task"], agent_folder.options_of(about)).tokenizer()
        network = agent_folder.network_of(about)
        recorded_texts.require_fit(network, tokenizer, dialogues, f"config.data={config.data}")


def write(config: EvaluateTextConfig, workdir: Path) -> None:
    """Writes ranks.json: the ranks by each agent's values."""
    dialogues = read_dialogues(config)
    pairs = pairs_of(dialogues)
    of_agents: dict[str, Any] = {}
    for folder in checks.listed(config.agent or ""):
        saved = agent_folder.load(folder, dtype=config.dtype)
        valued: list[ValuedDialogue] = []
        with Progress(len(dialogues), "dialogues", f"value by {folder}") as progress:
            for dialogue in recorded_texts.values_of(saved, dialogues):
                valued.append(dialogue)
                progress.update(len(valued))
        n = config.rank.n_gram
        lists = {
            "utterances": utterances(valued),
            f"{n}-grams": n_grams(valued, saved.tokenizer, n),
        }
        of_agents[folder] = {
            "method": saved.method,
            "dialogues": len(valued),
            "accuracy": ranking_accuracy(valued, pairs, config.rank.tokens),
            "lists": {name: _ends(ranked) for name, ranked in lists.items()},
        }
    atomic_write_json(workdir / FILE, of_agents)
    print(terminal_text(of_agents))
    print(f"written: {workdir / FILE}")


def read_dialogues(config: EvaluateTextConfig) -> Dialogues:
    """The first dialogues, and those of the last one's group."""
    dialogues = dialogue_files.read(dialogue_files.find(config.data or "", "data"))
    end = min(config.rank.dialogues, len(dialogues))
    if end == 0:
        return dialogues[:0]
    # Pairs of an expert's game and its branches are within a group.
    group = dialogues[end - 1].meta.get("group")
    while group is not None and end < len(dialogues) and dialogues[end].meta.get("group") == group:
        end += 1
    return dialogues[:end]


class RankedUtterance(NamedTuple):
    """An utterance, its count, and its mean summed advantage."""

    text: str
    times: int
    advantage: float


def utterances(valued: Sequence[ValuedDialogue]) -> list[RankedUtterance]:
    """Distinct actions by the mean of the sum of their tokens' advantages (target Q - V), without
    that of `</a>`; greatest first.
    """
    sums: dict[str, list[float]] = defaultdict(list)
    for one in valued:
        dialogue = one.dialogue
        advantages = one.values.target_q - one.values.v
        pairs = zip(dialogue.texts, dialogue.rewards, strict=True)
        actions = [text for text, reward in pairs if reward is not None]
        for text, span in zip(actions, one.spans, strict=True):
            # Without `</a>`, as published.
            sums[text].append(float(advantages[span][:-1].sum()))
    return _ranked(sums)


def n_grams(
    valued: Sequence[ValuedDialogue], tokenizer: TextTokenizer, n: int
) -> list[RankedUtterance]:
    """Distinct runs of `n` tokens within actions, by the mean of their summed advantages; greatest
    first.
    """
    sums: dict[str, list[float]] = defaultdict(list)
    for one in valued:
        advantages = one.values.target_q - one.values.v
        tokens = one.item.tokens[one.item.action_indices + 1]
        for span in one.spans:
            # To the token before `</a>`, hence not `span.stop - n + 1`.
            for start in range(span.start, span.stop - n):
                run = slice(start, start + n)
                sums[tokenizer.decode(tokens[run].tolist())].append(float(advantages[run].sum()))
    return _ranked(sums)


def _ranked(sums: Mapping[str, Sequence[float]]) -> list[RankedUtterance]:
    utterances = [
        RankedUtterance(text, len(values), float(np.mean(values))) for text, values in sums.items()
    ]
    return sorted(utterances, key=lambda utterance: (-utterance.advantage, utterance.text))


def _ends(ranked: Sequence[RankedUtterance]) -> Mapping[str, list[dict[str, Any]]]:
    """The first and the last of those that occur often enough."""
    frequent = [utterance._asdict() for utterance in ranked if utterance.times >= _LEAST_COUNT]
    # The least first, so that both lists begin with their extreme.
    return {"greatest": frequent[:_SHOWN], "least": frequent[::-1][:_SHOWN]}


class Pair(NamedTuple):
    """Indices of two dialogues that go apart at action `turn`, where both may still say the same:
    an expert's and another one.
    """

    expert: int
    other: int
    turn: int
    kind: str


def pairs_of(dialogues: Dialogues) -> list[Pair]:
    """The pairs of branching and adversarial data, whose `meta` says which games belong
    together.
    """
    experts: dict[str, int] = {}
    others: list[tuple[int, str, int, str]] = []
    for index in range(len(dialogues)):
        meta = dialogues[index].meta
        # Data of other origin do not say which belong together, or mean something else by these
        # words.
        if "group" not in meta:
            continue
        group = json.dumps(meta["group"])
        kind = meta.get("kind")
        start = meta.get("start")
        if kind == "expert":
            experts[group] = index
        elif isinstance(kind, str) and type(start) is int and start >= 0:
            others.append((index, group, start, kind))
    action_counts = dialogues.action_counts()
    pairs = []
    for index, group, start, kind in others:
        # Both need an action with the index `start`.
        if (
            group in experts
            and action_counts[experts[group]] > start
            and action_counts[index] > start
        ):
            pairs.append(Pair(experts[group], index, start, kind))
    return pairs


def ranking_accuracy(
    valued: Sequence[ValuedDialogue], pairs: Sequence[Pair], tokens: int = 6
) -> dict[str, float]:
    """'KIND_q_rank_acc_-I' (and 'q_target'): share of pairs in which Q of the expert's token I from
    the action's end exceeds the other's.

    By the kind of the others and I = 1 ... `tokens`; 'KIND_pairs' is the number of pairs. Where
    both said the same up to that token, Q is the same and does not exceed: 'KIND_q_rank_ties_-I' is
    the share of these pairs.
    """
    is_right: dict[str, list[bool]] = defaultdict(list)
    counts = Counter(f"{pair.kind}_pairs" for pair in pairs)
    for pair in pairs:
        expert = valued[pair.expert]
        other = valued[pair.other]
        expert_span = expert.spans[pair.turn]
        other_span = other.spans[pair.turn]
        for back in range(1, tokens + 1):
            # From the end, since the two actions may have different numbers of tokens.
            expert_token = expert_span.stop - back
            other_token = other_span.stop - back
            if expert_token < expert_span.start or other_token < other_span.start:
                continue
            q_above = expert.values.q[expert_token] > other.values.q[other_token]
            target_above = expert.values.target_q[expert_token] > other.values.target_q[other_token]
            is_tie = expert.values.q[expert_token] == other.values.q[other_token]
            is_right[f"{pair.kind}_q_rank_acc_-{back}"].append(bool(q_above))
            is_right[f"{pair.kind}_q_rank_ties_-{back}"].append(bool(is_tie))
            is_right[f"{pair.kind}_q_target_rank_acc_-{back}"].append(bool(target_above))
    return {**{name: float(np.mean(values)) for name, values in is_right.items()}, **counts}


def accuracy_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Ranking accuracies: a row per agent, kind of data and Q head; a column per token from an
    action's end.
    """
    rows: dict[tuple[str, str, str], dict[int, float]] = {}
    for agent, result in results.items():
        for name, value in result["accuracy"].items():
            match = _ACCURACY.fullmatch(name)
            if match is not None:
                key = (f"{agent} ({result['method']})", match[1], match[2].replace("_", " "))
                rows.setdefault(key, {})[int(match[3])] = value
    tokens = range(1, max((token for row in rows.values() for token in row), default=0) + 1)
    header = ["agent", "data", "values", *(f"token -{token}" for token in tokens)]
    cells = []
    for key, row in rows.items():
        cells.append([*key, *(f"{row[token]:.3f}" if token in row else "–" for token in tokens)])
    return header, cells


def terminal_text(results: Mapping[str, Any]) -> str:
    """The text for the terminal."""
    parts = []
    header, rows = accuracy_rows(results)
    if rows:
        table = text_tables.markdown(header, rows)
        parts.append(f"share of pairs in which the expert's token has the greater Q\n{table}")
    for agent, result in results.items():
        for name, ends in result["lists"].items():
            for end, ranked in ends.items():
                first = ", ".join(
                    f"{entry['text']!r} {entry['advantage']:+.2f}" for entry in ranked[:5]
                )
                parts.append(f"{agent}: {name} of {end} advantage: {first or 'none'}")
    return "\n".join(parts)
