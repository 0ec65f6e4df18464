"""Recommends a threshold of the reward that lies above the texts that the judge labelled as ties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

AUTO, QUANTILE = "auto", "quantile"
_MARGIN = 0.05  # of the recommended threshold above unrewarded texts, in standard deviations of the reward
_LUMP = 0.99  # share of the ties' steps up to the ties' edge; not all, since a rare text may have any reward


def advise(
    normalised: np.ndarray, steps: np.ndarray, tied: np.ndarray, empty: np.ndarray, levels: np.ndarray
) -> dict[str, Any]:
    """The share of steps that each threshold rewards, and a threshold that rewards no ties.

    Args:
      normalised, steps: float [M] and int [M], normalised reward of each distinct message, and steps that show it.
      tied, empty: bool [M], `Outcomes.tied`, and whether the message is empty.
      levels: float [Q], the thresholds of the quantile table.

    Returns:
      JSON-able: `paid_shares`, the share of rewarded steps per level; `lump_share`, the ties' share of the steps; `lump_edge`,
      the largest normalised reward of ties (None without ties); `threshold`, above ties and empty text (None without
      both); `paid_share`, the share of steps above it.
    """
    total = max(1, int(steps.sum()))

    def paid(threshold: float) -> float:
        return float(steps[normalised > threshold].sum()) / total

    floors, edge = list(map(float, normalised[empty])), None
    if tied.any():
        order = np.argsort(normalised[tied], kind="stable")
        reached = np.cumsum(steps[tied][order])
        edge = float(normalised[tied][order][np.searchsorted(reached, _LUMP * reached[-1])])
        floors.append(edge)
    threshold = max(floors) + _MARGIN if floors else None
    return {
        "paid_shares": [paid(value) for value in levels],
        "lump_share": float(steps[tied].sum()) / total,
        "lump_edge": edge,
        "threshold": threshold,
        "paid_share": None if threshold is None else paid(threshold),
    }


def describe(statistics: Mapping[str, Any], quantile: float | None) -> str:
    """Lines of text: the share of the dataset's steps that `quantile` rewards, the advice, a warning; '' without advice."""
    advice = statistics.get("advice")
    if not advice or quantile is None:
        return ""
    place = int(np.argmin(np.abs(np.asarray(statistics["quantile_levels"]) - quantile)))
    share = _percent(advice["paid_shares"][place])
    line = f"reward.quantile={quantile:g} pays {share} of the dataset's steps"
    if advice["threshold"] is None:
        return line + "\n"
    line += (
        f"; reward.threshold=auto ({advice['threshold']:.2f}, above the ties and the empty text) pays "
        f"{_percent(advice['paid_share'])}\n"
    )
    at, edge = statistics["quantiles"][place], advice["lump_edge"]
    if edge is not None and at < edge:
        line += (
            f"warning: the quantile's threshold {at:.2f} lies within the texts that the judge called ties "
            f"({_percent(advice['lump_share'])} of the steps, up to {edge:.2f}), so it pays for texts that the goal does not "
            "ask for: train the agent with --config.reward.threshold=auto\n"
        )
    return line


def facts(statistics: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(label, value, note) of the advice for a page; [] without advice."""
    advice = statistics.get("advice")
    if not advice or advice["threshold"] is None:
        return []
    ties = f"{_percent(advice['lump_share'])} of the steps show texts that the judge called ties"
    note = f"pays {_percent(advice['paid_share'])} of the steps; {ties}"
    return [("advised threshold", f"{advice['threshold']:.2f}", note)]


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
