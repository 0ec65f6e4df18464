"""The page that shows what a reward model likes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motif_jax.reports import charts, html, page
from motif_jax.reports.charts import Plot, Series
from motif_jax.reports.explain_data import ExplainedReward, Explanation, rank_correlation, seen
from motif_jax.reports.explain_table import message_table, titles
from motif_jax.reports.html import TableCell, message_cell, number_cell
from motif_jax.reports.page import Section, Table
from motif_jax.reports.statistics import wilson

BINS = 60
# Most dots of a chart with one dot per message.
DOTS = 1500


def histogram(reward: ExplainedReward, weights: np.ndarray, description: str) -> str:
    """Bars of the normalised reward with a line at the threshold, as inline SVG.

    Messages without a reward are left out. `weights`: [N], ones to count distinct messages, their counts to count steps.
    """
    values, weights = reward.normalised[reward.rated], weights[reward.rated]
    if not len(values):
        return html.nothing("there are no messages")
    low, high = float(values.min()), float(values.max())
    if reward.threshold is not None:
        low, high = min(low, reward.threshold), max(high, reward.threshold)
    margin = (high - low) * 0.02 or 0.5
    shares, edges = np.histogram(values, BINS, (low - margin, high + margin), weights=weights)
    shares = 100 * shares / max(1e-12, shares.sum())
    figure, axes = charts.new_figure("normalised reward", "share (%)")
    pays = -np.inf if reward.threshold is None else reward.threshold
    for share, left, right in zip(shares, edges[:-1], edges[1:], strict=True):
        if share:
            (bar,) = axes.bar(
                left, share, 0.9 * (right - left), align="edge", color=charts.COLOURS[0],
                alpha=1.0 if right > pays else 0.35,
            )  # fmt: skip
            charts.set_title(bar, f"{left:.2f} to {right:.2f}: {share:.2f} %")
    if reward.threshold is not None:
        label = f"threshold {reward.threshold:.2f}"
        axes.axvline(reward.threshold, color=charts.COLOURS[1], linestyle="--", label=label)
        figure.legend(loc="outside upper right", frameon=False, fontsize="small")
    return charts.inline(figure, description)


def scatter(explanation: Explanation, most: int = DOTS) -> str:
    """The `most` most frequent messages as dots: normalised reward under one model against the other, as inline SVG."""
    first, second = explanation.rewards
    both = np.flatnonzero(first.rated & second.rated)
    if not both.size:
        return html.nothing("there are no messages that both rate")
    both = both[np.argsort(-explanation.counts[both], kind="stable")[:most]]
    x, y = first.normalised[both], second.normalised[both]
    figure, axes = charts.new_figure(first.name, second.name)
    dots = axes.scatter(x, y, s=6, color=charts.COLOURS[0])
    dots.set_urls([f"{charts.TITLE}{explanation.messages[i]}" for i in both.tolist()])
    return charts.inline(figure, "rewards of both models")


def _cells(rewards: Sequence[ExplainedReward], index: int) -> list[TableCell]:
    cells: list[TableCell] = []
    for reward in rewards:
        paid = float(reward.paid[index])
        cells += [number_cell(reward.normalised[index], "+.3f"), number_cell(reward.raw[index], ".4g")]
        cells.append(TableCell(f"{paid:.3f}" if paid else "—", paid))
        if reward.disagreement is not None:
            cells.append(number_cell(reward.disagreement[index], ".3f"))
    if len(rewards) == 2:
        cells.append(number_cell(rewards[1].normalised[index] - rewards[0].normalised[index], "+.3f"))
    return cells


def _overview(reward: ExplainedReward, counts: np.ndarray) -> str:
    steps = max(1, int(counts.sum()))
    above, unrated = reward.pays, ~reward.rated
    tiles = [
        ("messages", f"{len(reward.raw):,}", "distinct"),
        (
            "pay something",
            f"{above.sum():,}",
            f"{100 * counts[above].sum() / steps:.1f} % of the dataset's steps",
        ),
        *reward.facts,
    ]
    if unrated.any():
        tiles.append(("not rated", f"{unrated.sum():,}", "messages on none of the steps that were looked at"))
    if reward.disagreement is not None and reward.rated.any():
        shown = reward.rated
        mean = float(np.average(reward.disagreement[shown], weights=np.maximum(counts[shown], 1)))
        tiles.append(("disagreement", f"{mean:.3f}", "mean over the dataset's steps"))
    return html.tiles(tiles)


def _training(reward: ExplainedReward) -> list[Plot]:
    epochs = np.array([row["epoch"] for row in reward.curve], float)

    def line(name: str, key: str, scale: float = 1.0, dashed: bool = False) -> Series:
        values = np.array([row.get(key, np.nan) for row in reward.curve], float)
        return Series(name, epochs, scale * values, dashed=dashed)

    accuracies = [
        line("training", "train/accuracy", 100),
        line("validation", "validation/accuracy", 100),
        line("new messages only", "validation_unseen/accuracy", 100),
        line("against score", "validation/score_accuracy", 100, True),
    ]
    losses = [line("training", "train/loss"), line("validation", "validation/loss")]
    quantiles = [line(f"{level} %", f"reward/quantile_{level:02d}") for level in (5, 25, 50, 75, 95)]
    known = "0.693 for a model that knows nothing"
    return [
        Plot("accuracy without ties", "epoch", "correct (%)", accuracies),
        Plot("loss", "epoch", "cross-entropy (nats per pair)", losses, note=known),
        Plot("quantiles of the distinct messages", "epoch", "normalised reward", quantiles),
        _calibration(reward),
    ]


def _calibration(reward: ExplainedReward) -> Plot:
    bins: list[dict[str, float]] = reward.curve[-1].get("calibration") or []
    error = reward.curve[-1].get("validation/calibration_error")
    right = [wilson(b["accuracy"], int(b["pairs"])) for b in bins]
    sure = 100 * np.array([b["confidence"] for b in bins])
    value, low, high = 100 * np.array([[r.value, r.low, r.high] for r in right]).reshape(-1, 3).T
    lines = [
        Series("model", sure, value, low, high, bars=True),
        Series("perfect", np.array([50.0, 100.0]), np.array([50.0, 100.0]), dashed=True),
    ]
    caption = f"bars: Wilson's 95 % intervals; n = {sum(b['pairs'] for b in bins):,} pairs" if bins else ""
    if error is not None and error == error:
        caption += f"; expected calibration error {100 * error:.1f} points"
    title, axes = "calibration on validation pairs", ("how sure (%)", "how often right (%)")
    return Plot(title, *axes, lines if bins else [], note=caption)


def _typed(explanation: Explanation) -> Section:
    header = ["text", "seen", *titles(explanation.typed, False)]
    rows = [
        [message_cell(text), TableCell(seen(count), count), *_cells(explanation.typed, i)]
        for i, (text, count) in enumerate(zip(explanation.texts, explanation.text_counts, strict=True))
    ]
    table = Table("typed", header, rows).html()
    wide = len(explanation.rewards) > 1
    return Section(
        "Texts that were asked for", "texts", [f'<div class="wide">{table}</div>' if wide else table]
    )


def _of_reward(reward: ExplainedReward, counts: np.ndarray, number: int, title: str) -> list[Section]:
    shown = (
        ("distinct messages", "distinct messages", np.ones(len(counts)), "each message once"),
        ("steps of the dataset", "steps", counts.astype(float), "each message as often as it was seen"),
    )
    figures = [
        html.figure(name, histogram(reward, weights, f"histogram over {over}"), caption)
        for name, over, weights, caption in shown
    ]
    training = _training(reward) if len(reward.curve) > 1 else [html.nothing("only one evaluation")]
    return [
        Section(title, f"reward-{number}", [_overview(reward, counts), html.grid(*figures)]),
        Section(f"{title} over the training", f"training-{number}", training),
    ]


def _side_by_side(explanation: Explanation) -> Section:
    first, second = explanation.rewards
    correlation = rank_correlation(first.normalised, second.normalised)
    both = int((first.pays & second.pays).sum())
    tiles = html.tiles(
        [
            ("rank correlation", f"{correlation:.2f}", "Spearman, over distinct messages"),
            ("paid by both", f"{both:,}", "distinct messages"),
        ]
    )
    caption = f"the {DOTS:,} most frequent" if len(explanation.messages) > DOTS else ""
    chart = html.figure("one dot a message", scatter(explanation), caption)
    return Section("Side by side", "both", [tiles, html.grid(chart)])


def _messages_note(explanation: Explanation, max_rows: int | None) -> str:
    note = (
        "Normalised: mean 0, variance 1 over the training messages; what has no normalisation (a probability, a table's number) is as "
        "it is. Paid: 0 at or below the threshold; the n-th time in an episode it is divided by n to the power of the count exponent. "
        "Click a column to sort."
    )
    unrated = int((~np.logical_and.reduce([reward.rated for reward in explanation.rewards])).sum())
    if unrated:
        note += (
            f" {unrated:,} messages have no reward (–): one that reads more than the message is averaged over max_steps "
            "steps of the dataset, and they are on none of those."
        )
    count = len(explanation.messages)
    if max_rows is not None and max_rows < count:
        note += f" The {max_rows:,} most frequent of {count:,} messages; messages.csv has all."
    return note


def render(explanation: Explanation, written: str, max_rows: int | None = None) -> str:
    """The page; `written` is its date. The table has the `max_rows` most frequent messages, None for all."""
    rewards = explanation.rewards
    sections = [_typed(explanation)] if explanation.texts else []
    for number, reward in enumerate(rewards):
        title = f"Reward: {reward.name}" if len(rewards) > 1 else "Reward"
        sections += _of_reward(reward, explanation.counts, number, title)
    sections += [_side_by_side(explanation)] if len(rewards) == 2 else []
    table, note = message_table(explanation, max_rows), _messages_note(explanation, max_rows)
    sections.append(Section("Messages", "messages-section", [table], note))
    names = " and ".join(reward.name for reward in rewards)
    return page.render("What the reward likes", f"{names} · {explanation.source} · {written}", sections)
