"""The data of a run's page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json
from motif_jax.core.metric_files import Curve
from motif_jax.display import measures
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


def read_reward_summary(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The used evaluation's numbers in a reward run's summary.json; {} without the file. Raises
    UserError: it is damaged.
    """
    path = Path(folder) / "summary.json"
    remedy = "the same command that made the run writes it again"
    used = read_json(path, remedy).get("used", {}) if path.exists() else {}
    if not isinstance(used, dict):
        raise UserError(f"{path} is damaged (used is not an object): {remedy}")
    return used
