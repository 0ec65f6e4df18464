"""The data of a run's page."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json
from motif_jax.core.metric_files import Curve
from motif_jax.play.messages import MessageTally
from motif_jax.reports.learned_reward import LabelLogReport
from motif_jax.reports.probes import Probes


@dataclass(frozen=True)
class LikedMessage:
    """A message with its normalised reward, before and after the threshold."""

    text: str
    count: int
    normalised: float
    paid: float


@dataclass
class RunData:
    """All data of the page, which names missing parts.

    `labels`: annotation -> label -> count. `reward_reads`: the observation fields of a reward that reads more than the message.
    `recorded_players`: stem -> link. `evaluations`: the agent's first; the verdict leaves out `yardsticks`. `lead`: margin of success
    over players that do not read; 0: by the intervals. `replays`: (title, link). `tests`: player -> generalisation tests.
    """

    title: str
    dataset: dict[str, str] = field(default_factory=dict)
    labels: dict[str, dict[str, int]] = field(default_factory=dict)
    reward_train: dict[str, np.ndarray] = field(default_factory=dict)
    reward_validation: dict[str, np.ndarray] = field(default_factory=dict)
    reward_reads: tuple[str, ...] = ()
    reward_summary: dict[str, Any] = field(default_factory=dict)
    liked: list[LikedMessage] = field(default_factory=list)
    message_curves: dict[str, Curve] = field(default_factory=dict)
    learned: LabelLogReport | None = None
    metrics: dict[str, Curve] = field(default_factory=dict)
    episodes: dict[str, Curve] = field(default_factory=dict)
    recorded: list[dict[str, Any]] = field(default_factory=list)
    recorded_players: dict[str, str] = field(default_factory=dict)
    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)
    yardsticks: list[str] = field(default_factory=list)
    lead: float = 0.0
    seen: dict[str, list[MessageTally]] = field(default_factory=dict)
    replays: list[tuple[str, str]] = field(default_factory=list)
    probes: Probes | None = None
    tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    language: dict[str, Curve] = field(default_factory=dict)
    text: dict[str, Curve] = field(default_factory=dict)
    games_page: str | None = None
    commands: list[tuple[str, str]] = field(default_factory=list)
    provenance: list[tuple[str, str]] = field(default_factory=list)


def read_reward_summary(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The used evaluation's numbers in a reward run's summary.json; {} without the file. Raises UserError: it is damaged."""
    path, remedy = Path(folder) / "summary.json", "the same command that made the run writes it again"
    used = read_json(path, remedy).get("used", {}) if path.exists() else {}
    if not isinstance(used, dict):
        raise UserError(f"{path} is damaged (used is not an object): {remedy}")
    return used
