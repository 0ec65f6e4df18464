"""Recommends a threshold of the reward above the texts that the judge labelled as ties or prefers
nothing to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.motif.pairs.outcomes import ABOVE, BELOW

# Values of the key reward.threshold.
AUTO = "auto"
QUANTILE = "quantile"
# Share of the steps above which the advised threshold says nothing, so that the quantile is used.
MAX_PAID = 0.5
# Texts that a line names at most.
NAMED = 5
# How far the recommended threshold lies above unrewarded texts, in standard deviations of the
# reward.
_MARGIN = 0.05
# Share of the ties' steps up to the ties' edge; not all, since the reward of a rare text may be
# anything.
_TIES_SHARE = 0.99


def advise(
    normalised: np.ndarray,
    steps: np.ndarray,
    tied: np.ndarray,
    empty: np.ndarray,
    levels: np.ndarray,
    standing: np.ndarray | None = None,
) -> dict[str, Any]:
    """The share of steps that each threshold rewards, and a threshold that rewards neither ties nor
    texts below silence.

    Args:
      normalised, steps: float [M] and int [M], normalised reward of each distinct message, and
          steps that show it.
      tied, empty: bool [M], `Outcomes.tied`, and whether the message is empty.
      levels: float [Q], the thresholds of the quantile table.
      standing: int8 [M], `outcomes.standing`; None where nothing is known of it.

    Returns:
      An object that JSON can hold, which statistics.json keeps:
        paid_shares: the share of rewarded steps for each level.
        lump_share: the share of the steps that show ties.
        lump_edge: the normalised reward up to which 99 % of those steps lie; None without ties.
        threshold: above the edge of the ties and above the empty text. It is raised above texts
          that do not beat the empty text in the labels, but never so far that a text which beats it
          loses its reward. None where there is nothing to lie above.
        paid_share: the share of steps above the threshold.
    """
    total = max(1, int(steps.sum()))

    def paid_share(threshold: float) -> float:
        return float(steps[normalised > threshold].sum()) / total

    # Normalised rewards that the threshold must lie above.
    floors = [float(reward) for reward in normalised[empty]]
    edge = None
    # By steps and not by texts: what is paid is what an agent meets.
    if tied.any():
        order = np.argsort(normalised[tied], kind="stable")
        ascending = normalised[tied][order]
        steps_so_far = np.cumsum(steps[tied][order])
        edge = float(ascending[np.searchsorted(steps_so_far, _TIES_SHARE * steps_so_far[-1])])
        floors.append(edge)
    threshold = max(floors) + _MARGIN if floors else None
    if standing is not None:
        threshold = _above_worthless(threshold, normalised, standing, ~empty)
    return {
        "paid_shares": [paid_share(level) for level in levels],
        "lump_share": float(steps[tied].sum()) / total,
        "lump_edge": edge,
        "threshold": threshold,
        "paid_share": None if threshold is None else paid_share(threshold),
    }


def _above_worthless(
    threshold: float | None, normalised: np.ndarray, standing: np.ndarray, has_text: np.ndarray
) -> float | None:
    """A threshold above texts that do not beat silence, as far as no text that does would lose its
    reward.
    """
    lowest = -np.inf if threshold is None else threshold
    worthy = normalised[(standing == ABOVE) & (normalised > lowest)]
    # The threshold has to stay below it.
    limit = float(worthy.min()) if worthy.size else np.inf
    worthless = normalised[
        (standing == BELOW) & has_text & (normalised > lowest) & (normalised < limit)
    ]
    if not worthless.size:
        return threshold
    highest = float(worthless.max())
    # Half the way to the lowest worthy text where the margin would reach it.
    return min(highest + _MARGIN, (highest + limit) / 2)


def without_a_win(
    normalised: np.ndarray, threshold: float | None, standing: np.ndarray, has_text: np.ndarray
) -> np.ndarray:
    """Texts above a threshold that do not beat silence in the labels, or were not compared with it.

    Returns their indices int64, the largest reward first. Arguments as in `advise`; `has_text`:
    bool [M], False for the empty message.
    """
    if threshold is None:
        return np.empty(0, np.int64)
    paid = np.flatnonzero((normalised > threshold) & (standing != ABOVE) & has_text)
    return paid[np.argsort(-normalised[paid], kind="stable")]


def describe(statistics: Mapping[str, Any], quantile: float | None) -> str:
    """Lines of text: the share of the dataset's steps that `quantile` rewards, the advice,
    warnings; '' without advice.
    """
    advice = statistics.get("advice")
    if not advice or quantile is None:
        return ""
    distances = np.abs(np.asarray(statistics["quantile_levels"]) - quantile)
    # Levels are multiples of 0.05, which floats hit only nearly.
    nearest = int(np.argmin(distances))
    share = _percent(advice["paid_shares"][nearest])
    line = f"reward.quantile={quantile:g} pays {share} of the training dataset's steps"
    if advice["threshold"] is None:
        return f"{line}\n{_misjudged(advice)}"

    line += f"; reward.threshold=auto ({advice['threshold']:.2f}, above the ties and the empty text) pays {_percent(advice['paid_share'])}"
    if falls_back(advice):
        return f"{line}, more than half: it falls back to the quantile\n{_misjudged(advice)}"

    warnings = _paid_without_win(advice)
    quantile_threshold = statistics["quantiles"][nearest]
    edge = advice["lump_edge"]
    if edge is not None and quantile_threshold < edge:
        warnings += (
            f"warning: the quantile's threshold {quantile_threshold:.2f} lies within the texts that the judge called ties "
            f"({_percent(advice['lump_share'])} of the steps, up to {edge:.2f}), so it pays for texts that the goal does not "
            "ask for: train the agent with --config.reward.threshold=auto\n"
        )
    return f"{line}\n{warnings}{_misjudged(advice)}"


def falls_back(advice: Mapping[str, Any]) -> bool:
    """Whether the advised threshold pays too many steps to mean anything, as where a judge puts
    only silence last.
    """
    return advice.get("threshold") is not None and (advice.get("paid_share") or 0.0) > MAX_PAID


def _paid_without_win(advice: Mapping[str, Any]) -> str:
    """A warning about texts that the advised threshold pays without a win over silence; '' without
    any.
    """
    texts = advice.get("paid_without_win", [])
    if not texts:
        return ""
    number = advice["paid_without_win_texts"]
    num_named = min(NAMED, len(texts))
    subject = "1 text" if number == 1 else f"{number:,} texts"
    if number > num_named:
        subject += f", the first {num_named} here,"
    subject += " that does" if number == 1 else " that do"
    names = [f"{text['text']!r} ({text['why']}, {text['reward']:+.2f})" for text in texts[:NAMED]]
    return f"warning: reward.threshold=auto pays {subject} not beat the empty text in the labels: {', '.join(names)}\n"


def _misjudged(advice: Mapping[str, Any]) -> str:
    """A warning about texts whose comparisons the reward mostly orders wrongly; '' without any."""
    texts = advice.get("misjudged", [])
    if not texts:
        return ""
    names = [
        f"{text['text']!r} (wins {text['wins']:,}, loses {text['losses']:,}, reward {text['reward']:+.2f}; {text['wrong']:,} ordered wrongly)"
        for text in texts[:NAMED]
    ]
    number = advice["misjudged_texts"]
    more = "" if number <= NAMED else " and more"
    return (
        f"warning: the reward of {number:,} of {advice['texts']:,} texts disagrees with most of their labels: "
        f"{', '.join(names)}{more}: train longer, with more --config.epochs or --config.least_steps.per_text\n"
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
    """Two digits; three for what would else be rounded to 1e+02 %."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
