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
# Share of the steps that an advised threshold pays at most, but for the best text, which it pays in
# any case.
MAX_PAID = 0.5
# Texts that a line names at most.
NAMED = 5
# Datasets with no more distinct texts are shown text by text.
FEW = 30
# The normalised reward of what usually happens: the mean over steps, so that texts count by how
# often they occur. A text below it would be paid less than nothing.
_MEAN_STEP = 0.0
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
    texts below silence, nor what usually happens.

    Args:
      normalised, steps: float [M] and int [M], M >= 1: normalised reward of each distinct message,
          0 that of the mean step, and steps that show it.
      tied, empty: bool [M], `Outcomes.tied`, and whether the message is empty.
      levels: float [Q], the thresholds of the quantile table.
      standing: int8 [M], `outcomes.standing`; None where nothing is known of it.

    Returns:
      An object that JSON can hold, which statistics.json keeps:
        paid_shares: the share of rewarded steps for each level.
        lump_share: the share of the steps that show ties.
        lump_edge: the normalised reward up to which 99 % of those steps lie; None without ties.
        threshold: above the edge of the ties and above the empty text; without an empty text not
          below the mean step. It is raised above texts that do not beat the empty text in the
          labels (without one: that do not win most of their comparisons), but never so far that a
          text which does loses its reward. Where more than half of the steps lie above it, it is
          raised to the best texts, see `best_half`.
        has_empty: whether there is an empty text.
        by_steps: whether `best_half` gave the threshold.
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
    threshold = max(floors) + _MARGIN if floors else _MEAN_STEP
    if not empty.any():
        threshold = max(threshold, _MEAN_STEP)
    if standing is not None:
        threshold = _above_worthless(threshold, normalised, standing, ~empty)

    by_steps = paid_share(threshold) > MAX_PAID
    if by_steps:
        threshold = max(threshold, best_half(normalised, steps), _MEAN_STEP)
        if standing is not None:
            threshold = _above_worthless(threshold, normalised, standing, ~empty)
    return {
        "paid_shares": [paid_share(level) for level in levels],
        "lump_share": float(steps[tied].sum()) / total,
        "lump_edge": edge,
        "threshold": float(threshold),
        "has_empty": bool(empty.any()),
        "by_steps": by_steps,
        "paid_share": paid_share(threshold),
    }


def best_half(normalised: np.ndarray, steps: np.ndarray) -> float:
    """A threshold that pays the best texts, on half of the steps at most, and the very best on
    however many.

    A text that is on most steps is what usually happens, however few other texts there are: the
    median of distinct texts would pay half of these. Arguments as in `advise`.
    """
    rewards, of_reward = np.unique(normalised, return_inverse=True)
    if rewards.size == 1:
        # No text is better than another.
        return float(rewards[0])
    steps_of_reward = np.bincount(of_reward, weights=steps)
    # float [rewards]: the steps of texts with this reward or a greater one, the greatest first.
    steps_from_best = np.cumsum(steps_of_reward[::-1])
    fitting = int((steps_from_best <= MAX_PAID * steps_from_best[-1]).sum())
    # One reward is left unpaid at least: all steps are more than half.
    lowest_paid = rewards.size - max(1, fitting)
    return float((rewards[lowest_paid - 1] + rewards[lowest_paid]) / 2)


def _above_worthless(
    threshold: float, normalised: np.ndarray, standing: np.ndarray, has_text: np.ndarray
) -> float:
    """A threshold above texts that are BELOW in the labels, as far as no text that is ABOVE would
    lose its reward.
    """
    worthy = normalised[(standing == ABOVE) & (normalised > threshold)]
    # The threshold has to stay below it.
    limit = float(worthy.min()) if worthy.size else np.inf
    worthless = normalised[
        (standing == BELOW) & has_text & (normalised > threshold) & (normalised < limit)
    ]
    if not worthless.size:
        return threshold
    highest = float(worthless.max())
    # Half the way to the lowest worthy text where the margin would reach it.
    return min(highest + _MARGIN, (highest + limit) / 2)


def without_a_win(
    normalised: np.ndarray, threshold: float, standing: np.ndarray, has_text: np.ndarray
) -> np.ndarray:
    """Texts above a threshold that are not ABOVE in the labels, as they lose or were not compared.

    Returns their indices int64, the largest reward first. Arguments as in `advise`; `has_text`:
    bool [M], False for the empty message.
    """
    paid = np.flatnonzero((normalised > threshold) & (standing != ABOVE) & has_text)
    return paid[np.argsort(-normalised[paid], kind="stable")]


def describe(statistics: Mapping[str, Any], quantile: float | None) -> str:
    """Lines of text: the share of the dataset's steps that `quantile` rewards, the advice, what it
    pays where there are few texts, warnings; '' without advice.
    """
    advice = statistics.get("advice")
    if not advice or quantile is None:
        return ""
    distances = np.abs(np.asarray(statistics["quantile_levels"]) - quantile)
    # Levels are multiples of 0.05, which floats hit only nearly.
    nearest = int(np.argmin(distances))
    lines = (
        f"reward.quantile={quantile:g} pays {_percent(advice['paid_shares'][nearest])} of the training dataset's steps; "
        f"reward.threshold=auto ({advice['threshold']:.2f}, {_rule(advice)}) pays {_percent(advice['paid_share'])}\n"
    )
    lines += _text_by_text(advice)
    lines += _paid_without_win(advice)
    quantile_threshold = statistics["quantiles"][nearest]
    edge = advice["lump_edge"]
    if edge is not None and quantile_threshold < edge:
        lines += (
            f"warning: the quantile's threshold {quantile_threshold:.2f} lies within the texts that the judge called ties "
            f"({_percent(advice['lump_share'])} of the steps, up to {edge:.2f}), so it pays for texts that the goal does not "
            "ask for: train the agent with --config.reward.threshold=auto\n"
        )
    return lines + _misjudged(advice)


def _has_empty(advice: Mapping[str, Any]) -> bool:
    # Files of before the key have an empty text, or nothing advised.
    return bool(advice.get("has_empty", True))


def _rule(advice: Mapping[str, Any]) -> str:
    """What the advised threshold pays, or lies above, in words."""
    if advice.get("by_steps", False):
        above = "most steps lie above the empty one" if _has_empty(advice) else "no text is empty"
        return f"the best texts on up to half of the steps, at least the best one, since {above}"
    if _has_empty(advice):
        return "above the ties and the empty text"
    return "above the mean step, the ties and texts that lose most of their comparisons, since no text is empty"


def _text_by_text(advice: Mapping[str, Any]) -> str:
    """A line for each text of a dataset with few: what it is paid, how often it occurs, and its
    comparisons; '' of others.
    """
    texts = advice.get("few_texts", [])
    if not texts:
        return ""
    paid = [text for text in texts if text["reward"] > advice["threshold"]]
    lines = [
        f"reward.threshold=auto pays {len(paid):,} of {len(texts):,} texts (reward; share of the steps; comparisons won, lost, tied):"
    ]
    for text in texts:
        pays = "pays" if text["reward"] > advice["threshold"] else "  no"
        comparisons = f"{text['wins']:,} won, {text['losses']:,} lost, {text['ties']:,} tied"
        lines.append(
            f"  {pays} {text['reward']:+6.2f} {_percent(text['steps_share']):>8} {comparisons:>28}  {text['text']!r}"
        )
    return "\n".join(lines) + "\n"


def _paid_without_win(advice: Mapping[str, Any]) -> str:
    """A warning about texts that the advised threshold pays without a win over silence, or over
    most other texts; '' without any.
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
    win = "beat the empty text" if _has_empty(advice) else "win most of their comparisons"
    names = [f"{text['text']!r} ({text['why']}, {text['reward']:+.2f})" for text in texts[:NAMED]]
    return f"warning: reward.threshold=auto pays {subject} not {win} in the labels: {', '.join(names)}\n"


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
    if not advice:
        return []
    ties = f"{_percent(advice['lump_share'])} of the steps show texts that the judge called ties"
    note = f"{_rule(advice)}; it pays {_percent(advice['paid_share'])} of the steps; {ties}"
    return [("advised threshold", f"{advice['threshold']:.2f}", note)]


def _percent(share: float) -> str:
    """Two digits; three for what would else be rounded to 1e+02 %."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
