"""The data of a run's page, and how runs were made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.metric_files import Curve
from motif_jax.core.run_folder import read_description
from motif_jax.display import html, measures
from motif_jax.display.html import TableCell
from motif_jax.display.page import Fold, Section, Table
from motif_jax.play.messages import MessageTally
from motif_jax.reports.learned_reward import LabelLogReport
from motif_jax.reports.probe_report import Probes
from motif_jax.rl.paid_texts import PaidRow


@dataclass(frozen=True)
class LikedMessage:
    """A message with its normalised reward, before and after the threshold."""

    text: str
    count: int
    normalised: float
    paid: float


@dataclass
class RunData:
    """All data of the page, which names missing parts."""

    title: str
    # The dataset: its facts; annotation -> label -> count.
    dataset: dict[str, str] = field(default_factory=dict)
    labels: dict[str, dict[str, int]] = field(default_factory=dict)
    # The reward: columns of its two CSV files, its best evaluation, messages by their rewards.
    reward_train: dict[str, np.ndarray] = field(default_factory=dict)
    reward_validation: dict[str, np.ndarray] = field(default_factory=dict)
    reward_reads: tuple[str, ...] = ()  # observation fields, where it reads more than the message
    reward_summary: dict[str, Any] = field(default_factory=dict)
    liked: list[LikedMessage] = field(default_factory=list)
    message_curves: dict[str, Curve] = field(default_factory=dict)
    learned: LabelLogReport | None = None
    # The agent's training: curves over environment steps, what texts were paid, recorded episodes,
    # and stem -> link of their players.
    metrics: dict[str, Curve] = field(default_factory=dict)
    episodes: dict[str, Curve] = field(default_factory=dict)
    paid_rows: list[PaidRow] = field(default_factory=list)
    standstill: str = ""  # a sentence where the agent stays with one text that pays each time
    recorded: list[dict[str, Any]] = field(default_factory=list)
    recorded_players: dict[str, str] = field(default_factory=dict)
    probes: Probes | None = None
    # Evaluations by name, the agent's first; the verdict leaves out `yardsticks`.
    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)
    yardsticks: list[str] = field(default_factory=list)
    # Measures that are progress beside success and return: 1 if more is better, else -1.
    progress: Mapping[str, int] = field(default_factory=lambda: measures.PROGRESS)
    lead: float = 0.0  # margin of success over players that do not read; 0: by the intervals
    message_tallies: dict[str, list[MessageTally]] = field(default_factory=dict)  # by evaluation
    replays: list[tuple[str, str]] = field(default_factory=list)  # (title, link)
    games_page: str | None = None
    tests: dict[str, dict[str, Any]] = field(default_factory=dict)  # player -> generalisation tests
    # Trainings of a language model and of an agent that speaks.
    language: dict[str, Curve] = field(default_factory=dict)
    text: dict[str, Curve] = field(default_factory=dict)
    # (title, text) of commands, and of config.json and versions.json.
    commands: list[tuple[str, str]] = field(default_factory=list)
    provenance: list[tuple[str, str]] = field(default_factory=list)


def command_of(folder: str | Path, name: str) -> list[tuple[str, str]]:
    """[(name, command of the run)]; [] if it is unknown."""
    command = read_description(Path(folder) / "versions.json").get("command")
    return [(name, command)] if isinstance(command, str) else []


def provenance_of(folder: str | Path, name: str) -> list[tuple[str, str]]:
    """Config, versions and command of a run folder as (title, text); missing files are left out."""
    texts = []
    for file in ("config.json", "versions.json"):
        description = read_description(Path(folder) / file)
        if description:
            texts.append((f"{name}: {file}", json.dumps(description, indent=2)))
    return texts


def provenance_section(
    provenance: Sequence[tuple[str, str]], commands: Sequence[tuple[str, str]] = ()
) -> Section:
    """Configs and versions as (title, text), and commands as (name, command)."""
    parts: list[Any] = []
    if commands:
        rows = [(name, TableCell(command, code=True)) for name, command in commands]
        parts.append(Table("commands", ("run", "command"), rows))
    parts += [html.details(*text) for text in provenance]
    if not provenance:
        parts.append(html.nothing("no run folder was given"))
    return Section(
        "How it was made", "provenance", [Fold("commands, settings and versions", parts)]
    )
