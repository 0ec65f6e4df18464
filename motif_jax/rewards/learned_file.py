"""The additional part of a file of a reward that was learned online."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.networks.classifier import MessageClassifier
from motif_jax.networks.reward import RewardNetwork
from motif_jax.rewards.learned import CLASSIFICATION, RETRIEVAL, LearnedReward, is_learned
from motif_jax.support.config import is_finite
from motif_jax.support.errors import UserError


def header(reward: LearnedReward) -> dict[str, Any]:
    """The JSON object `learned` of the file's header: gradient steps, and the labels of single texts."""
    return {
        "taken": reward.taken,
        "labels": {text: [label, p] for text, (label, p) in reward.labels.items()},
    }


def network_of(config: Mapping[str, Any], network: RewardNetwork) -> RewardNetwork | MessageClassifier | None:
    """The network of a run's reward; None for a table of labels."""
    kind = config["reward"]["kind"]
    if kind == RETRIEVAL:
        return None
    return MessageClassifier(config["reward"]["encoder"]) if kind == CLASSIFICATION else network


def check_header(head: Mapping[str, Any], place: str | Path) -> None:
    """Raises UserError for a bad `learned` of a header, or a bad config in it."""
    learned, config = head["learned"], head["config"]
    good = isinstance(learned, dict) and type(learned.get("taken")) is int
    labels = learned.get("labels") if good else None
    good = isinstance(labels, dict) and all(_is_label(said) for said in labels.values())
    if not good:
        raise UserError(f"{place}: learned of the reward must be an object with taken and labels")
    try:
        reward = config["reward"]
        read = [reward[name] for name in ("encoder", "value", "normalise", "threshold")]
        read += [config["compat"], reward["classifier"]["threshold"], reward["training"]["deviations"]]
        whole = is_learned(config) and None not in read
    except (KeyError, TypeError):
        whole = False
    if not whole:
        raise UserError(f"{place}: config of the reward must be that of a run of configs/oni.py")


def _is_label(said: Any) -> bool:
    return (
        isinstance(said, list)
        and len(said) == 2
        and type(said[0]) is int
        and (said[1] is None or is_finite(said[1]))
    )


def read(
    path: Path, head: Mapping[str, Any], network: RewardNetwork, params: Any, curve: list[dict[str, Any]]
) -> LearnedReward:
    """The reward of a checked header."""
    return LearnedReward(
        path,
        head["step"],
        network,
        params,
        head["members"],
        head["statistics"],
        head["config"],
        curve,
        labels={text: (label, p) for text, (label, p) in head["learned"]["labels"].items()},
        taken=head["learned"]["taken"],
    )
