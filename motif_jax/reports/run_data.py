"""The data of a run's page."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.reports.learned_reward import LabelLogReport
from motif_jax.reports.messages import MessageTally
from motif_jax.reports.probes import Probes
from motif_jax.support.errors import UserError
from motif_jax.support.files import read_json
from motif_jax.support.metric_files import Curve


@dataclass(frozen=True)
class LikedMessage:
    """A message with its normalised reward and what it pays after the threshold."""

    text: str
    count: int
    normalised: float
    paid: float


@dataclass
class RunData:
    """Everything the page is made from; what is missing is said on the page.

    Attributes:
      dataset: facts of the pairs dataset; labels: of each annotation, counts by name.
      reward_train, reward_validation: columns of the published CSV files; reward_summary: of the used evaluation.
      reward_reads: the observation fields of a reward that reads more than the message; () for any other.
      message_curves: rewards of the most and least liked messages over the reward's evaluations.
      recorded: episodes of the training with a recording; recorded_players: relative links to players of them, by stem.
      evaluations: by name, the first is the agent; yardsticks: names of those that it is not judged by.
      lead: by how much success the first one is to lead those that do not read; 0: as their intervals say.
      seen: by evaluation name, the messages seen in play; replays: (title, relative link) of recorded episodes.
      tests: tests of generalisation by player; language, text: curves of language models and of text agents.
      games_page: relative link to the first evaluation's games token by token.
      commands, provenance: (run, text).
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
    """The used evaluation's numbers in a reward run's summary.json, {} without one. Raises UserError: the file is damaged."""
    path, remedy = Path(folder) / "summary.json", "the same command that made the run writes it again"
    used = read_json(path, remedy).get("used", {}) if path.exists() else {}
    if not isinstance(used, dict):
        raise UserError(f"{path} is damaged (no object as used): {remedy}")
    return used
