"""Recommends a threshold of the reward above the texts that the judge labelled as ties or prefers nothing to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.motif.pairs.outcomes import ABOVE, BELOW

AUTO, QUANTILE = "auto", "quantile"
# Share of the steps above which the advised threshold says nothing, so that the quantile is used.
MOST_PAID = 0.5
# Texts that a line names at most.
NAMED = 5
_MARGIN = 0.05  # of the recommended threshold above unrewarded texts, in standard deviations of the reward
_LUMP = 0.99  # share of the ties' steps up to the ties' edge; not all, since a rare text may have any reward


def advise(
    normalised: np.ndarray,
    steps: np.ndarray,
    tied: np.ndarray,
    empty: np.ndarray,
    levels: np.ndarray,
    standing: np.ndarray | None = None,
) -> dict[str, Any]:
    """The share of steps that each threshold rewards, and a threshold that rewards neither ties nor texts below silence.

    Args:
      normalised, steps: float [M] and int [M], normalised reward of each distinct message, and steps that show it.
      tied, empty: bool [M], `Outcomes.tied`, and whether the message is empty.
      levels: float [Q], the thresholds of the quantile table.
      standing: int8 [M], `outcomes.standing`; None where nothing is known of it.

    Returns:
      JSON-able: `paid_shares`, the share of rewarded steps per level; `lump_share`, the ties' share of the steps; `lump_edge`,
      the largest normalised reward of ties (None without ties); `threshold`, above ties, the empty text and the texts that do not
      beat it, but below all other texts that do (None without any); `paid_share`, the share of steps above it.
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
    if standing is not None:
        threshold = _above_worthless(threshold, normalised, standing, ~empty)
    return {
        "paid_shares": [paid(value) for value in levels],
        "lump_share": float(steps[tied].sum()) / total,
        "lump_edge": edge,
        "threshold": threshold,
        "paid_share": None if threshold is None else paid(threshold),
    }


def _above_worthless(
    threshold: float | None, normalised: np.ndarray, standing: np.ndarray, shown: np.ndarray
) -> float | None:
    """A threshold above texts that do not beat silence, as far as no text that does would lose its reward."""
    lowest = -np.inf if threshold is None else threshold
    worthy = normalised[(standing == ABOVE) & (normalised > lowest)]
    limit = float(worthy.min()) if worthy.size else np.inf
    worthless = normalised[(standing == BELOW) & shown & (normalised > lowest) & (normalised < limit)]
    if not worthless.size:
        return threshold
    highest = float(worthless.max())
    return min(highest + _MARGIN, (highest + limit) / 2)


def without_a_win(
    normalised: np.ndarray, threshold: float | None, standing: np.ndarray, shown: np.ndarray
) -> np.ndarray:
    """Texts above a threshold that do not beat silence in the labels, or were not compared with it: indices, largest reward first."""
    if threshold is None:
        return np.empty(0, np.int64)
    chosen = np.flatnonzero((normalised > threshold) & (standing != ABOVE) & shown)
    return chosen[np.argsort(-normalised[chosen], kind="stable")]


def describe(statistics: Mapping[str, Any], quantile: float | None) -> str:
    """Lines of text: the share of the dataset's steps that `quantile` rewards, the advice, warnings; '' without advice."""
    advice = statistics.get("advice")
    if not advice or quantile is None:
        return ""
    place = int(np.argmin(np.abs(np.asarray(statistics["quantile_levels"]) - quantile)))
    share = _percent(advice["paid_shares"][place])
    line = f"reward.quantile={quantile:g} pays {share} of the dataset's steps"
    if advice["threshold"] is None:
        return f"{line}\n{_misjudged(advice)}"
    line += f"; reward.threshold=auto ({advice['threshold']:.2f}, above the ties and the empty text) pays {_percent(advice['paid_share'])}"
    if falls_back(advice):
        line += f", more than half: it falls back to the quantile\n{_misjudged(advice)}"
        return line
    line += f"\n{_unbeaten(advice)}"
    at, edge = statistics["quantiles"][place], advice["lump_edge"]
    if edge is not None and at < edge:
        line += (
            f"warning: the quantile's threshold {at:.2f} lies within the texts that the judge called ties "
            f"({_percent(advice['lump_share'])} of the steps, up to {edge:.2f}), so it pays for texts that the goal does not "
            "ask for: train the agent with --config.reward.threshold=auto\n"
        )
    return line + _misjudged(advice)


def falls_back(advice: Mapping[str, Any]) -> bool:
    """Whether the advised threshold pays too many steps to mean anything, as where a judge puts only silence last."""
    return advice.get("threshold") is not None and (advice.get("paid_share") or 0.0) > MOST_PAID


def _unbeaten(advice: Mapping[str, Any]) -> str:
    texts = advice.get("unbeaten", [])
    if not texts:
        return ""
    shown = ", ".join(f"{one['text']!r} ({one['why']}, {one['reward']:+.2f})" for one in texts[:NAMED])
    return f"warning: reward.threshold=auto pays {_count(texts, advice['unbeaten_texts'])} not beat the empty text in the labels: {shown}\n"


def _count(texts: Sequence[Any], number: int) -> str:
    named = "" if number <= min(NAMED, len(texts)) else f", the first {min(NAMED, len(texts))} here,"
    return f"{number:,} {'text' if number == 1 else 'texts'}{named} that {'does' if number == 1 else 'do'}"


def _misjudged(advice: Mapping[str, Any]) -> str:
    texts = advice.get("misjudged", [])
    if not texts:
        return ""
    shown = ", ".join(
        f"{one['text']!r} (wins {one['wins']:,}, loses {one['losses']:,}, reward {one['reward']:+.2f}; {one['wrong']:,} ordered wrongly)"
        for one in texts[:NAMED]
    )
    number = advice["misjudged_texts"]
    return (
        f"warning: the reward of {number:,} of {advice['texts']:,} texts disagrees with most of their labels: {shown}"
        f"{'' if number <= NAMED else ' and more'}: train longer, with more --config.epochs or "
        "--config.least_steps.per_text\n"
    )


def facts(statistics: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(label, value, note) of the advice for a page; [] without advice."""
    advice = statistics.get("advice")
    if not advice or advice["threshold"] is None:
        return []
    ties = f"{_percent(advice['lump_share'])} of the steps show texts that the judge called ties"
    note = f"pays {_percent(advice['paid_share'])} of the steps; {ties}"
    if falls_back(advice):
        note += "; more than half, so that threshold=auto falls back to the quantile"
    return [("advised threshold", f"{advice['threshold']:.2f}", note)]


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
