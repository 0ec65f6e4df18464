"""The page that shows what a reward model likes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from motif_jax.display import charts, html, page
from motif_jax.display.charts import Plot, Series
from motif_jax.display.html import TableCell, message_cell, number_cell
from motif_jax.display.page import Section, Table
from motif_jax.display.statistics import wilson
from motif_jax.motif.explanation import (
    Composition,
    ExplainedReward,
    Explanation,
    occurrences_text,
    rank_correlation,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 60
# Most dots of a chart with one dot per message.
DOTS = 1500
COMPOSITIONS_NOTE = (
    "Messages that are paid although one of their sentences, where the dataset shows it alone, is below three quarters of its messages. An agent may seek what "
    "that sentence says, and each joined message counts as a new one."
)
# Rows of the table of messages before "show all" is pressed.
SHOWN = 100


def histogram(reward: ExplainedReward, weights: np.ndarray, description: str) -> str:
    """Bars of the normalised reward, each message with its weight [N], and a line at the threshold,
    as inline SVG.

    What is paid is dark; a bar around the threshold is dark above and pale below, by what of it is
    paid.
    """
    values = reward.normalised[reward.rated]
    weights = weights[reward.rated]
    if not len(values):
        return html.nothing("there are no messages")
    low = float(values.min())
    high = float(values.max())
    paid = np.full(len(values), True)
    if reward.threshold is not None:
        low = min(low, reward.threshold)
        high = max(high, reward.threshold)
        paid = values > reward.threshold
    # Equal rewards span nothing: 0.5 makes room for their bar.
    margin = (high - low) * 0.02 or 0.5
    span = (low - margin, high + margin)
    percent = 100 / max(1e-12, float(weights.sum())) * weights
    unpaid_shares, edges = np.histogram(values[~paid], BINS, span, weights=percent[~paid])
    paid_shares, _ = np.histogram(values[paid], BINS, span, weights=percent[paid])

    figure, axes = charts.new_figure("normalised reward", "share (%)")
    _draw_bars(axes, unpaid_shares, np.zeros(BINS), edges, 0.35, "unpaid")
    _draw_bars(axes, paid_shares, unpaid_shares, edges, 1.0, "paid")
    if reward.threshold is not None:
        label = f"threshold {reward.threshold:.2f}"
        axes.axvline(reward.threshold, color=charts.COLOURS[1], linestyle="--", label=label)
        figure.legend(loc="outside upper right", frameon=False, fontsize="small")
    return charts.inline(figure, description)


def _draw_bars(
    axes: Axes, shares: np.ndarray, bottoms: np.ndarray, edges: np.ndarray, alpha: float, name: str
) -> None:
    """Draws `shares` [BINS], in %, on top of `bottoms` [BINS], each bar with a tooltip."""
    for share, bottom, left, right in zip(shares, bottoms, edges[:-1], edges[1:], strict=True):
        if share == 0:
            continue
        width = 0.9 * (right - left)
        (bar,) = axes.bar(
            left, share, width, bottom, align="edge", color=charts.COLOURS[0], alpha=alpha
        )
        charts.set_title(bar, f"{left:.2f} to {right:.2f}: {share:.2f} % {name}")


def scatter(explanation: Explanation) -> str:
    """The most frequent messages as dots: normalised reward under one model against the other, as
    inline SVG.
    """
    first, second = explanation.rewards
    both = np.flatnonzero(first.rated & second.rated)
    if not both.size:
        return html.nothing("there are no messages that both rate")
    both = both[np.argsort(-explanation.counts[both], kind="stable")[:DOTS]]
    x, y = first.normalised[both], second.normalised[both]
    figure, axes = charts.new_figure(first.name, second.name)
    dots = axes.scatter(x, y, s=6, color=charts.COLOURS[0])
    dots.set_urls([f"{charts.TITLE}{explanation.messages[i]}" for i in both.tolist()])
    return charts.inline(figure, "rewards of both models")


def _cells(
    rewards: Sequence[ExplainedReward], index: int, history: bool = False
) -> list[TableCell]:
    """The cells of a message, under the titles of `_titles`."""
    cells: list[TableCell] = []
    for reward in rewards:
        paid = float(reward.paid[index]) if reward.rated[index] else np.nan
        cells.append(number_cell(reward.normalised[index], "+.3f"))
        cells.append(number_cell(reward.raw[index], ".4g"))
        # A dash where nothing is paid; NaN, of a message without a reward, is true here.
        cells.append(number_cell(paid, ".3f") if paid else TableCell("—", paid))
        if reward.disagreement is not None:
            cells.append(number_cell(reward.disagreement[index], ".3f"))
        if history:
            change = float(reward.history[-1, index]) - float(reward.history[0, index])
            cells.append(number_cell(change, "+.3f"))
    if len(rewards) == 2:
        cells.append(
            number_cell(rewards[1].normalised[index] - rewards[0].normalised[index], "+.3f")
        )
    return cells


def _overview(reward: ExplainedReward, counts: np.ndarray) -> str:
    unrated = ~reward.rated
    share = f"{100 * reward.paid_share(counts):.1f} % of the dataset's steps"
    if unrated.any():
        share += " with a rated message"
    tiles = [
        ("messages", f"{len(reward.raw):,}", "distinct"),
        ("pay something", f"{reward.pays.sum():,}", share),
        *reward.facts,
    ]
    if unrated.any():
        tiles.append(
            ("not rated", f"{unrated.sum():,}", "messages on none of the steps that were looked at")
        )
    if reward.disagreement is not None and not unrated.all():
        mean = float(
            np.average(reward.disagreement[~unrated], weights=np.maximum(counts[~unrated], 1))
        )
        tiles.append(("disagreement", f"{mean:.3f}", "mean over the dataset's steps"))
    return html.tiles(tiles)


def _training(reward: ExplainedReward) -> list[Plot]:
    epochs = np.array([row["epoch"] for row in reward.curve], float)

    def line(name: str, key: str, scale: float = 1.0, dashed: bool = False) -> Series:
        # NaN leaves a gap, as at the fresh network, which has no training loss.
        values = np.array([row.get(key, np.nan) for row in reward.curve], float)
        return Series(name, epochs, scale * values, dashed=dashed)

    parts = {
        "training": "train",
        "validation": "validation",
        "new messages only": "validation_unseen",
    }
    accuracies = [line(name, f"{part}/accuracy", 100) for name, part in parts.items()]
    accuracies.append(line("against score", "validation/score_accuracy", 100, True))
    losses = [line("training", "train/loss"), line("validation", "validation/loss")]
    quantiles = [
        line(f"{level} %", f"reward/quantile_{level:02d}") for level in (5, 25, 50, 75, 95)
    ]
    chance = "0.693 for a model that knows nothing"
    return [
        Plot("accuracy without ties", "epoch", "correct (%)", accuracies),
        Plot("loss", "epoch", "cross-entropy (nats per pair)", losses, note=chance),
        Plot("quantiles of the distinct messages", "epoch", "normalised reward", quantiles),
        _calibration(reward),
    ]


def _calibration(reward: ExplainedReward) -> Plot:
    """How often the labels agree with the last evaluation, by how sure it was, in bins of pairs."""
    last = reward.curve[-1]
    bins: list[dict[str, float]] = last.get("calibration") or []
    lines: list[Series] = []
    caption = ""
    if bins:
        confidence = 100 * np.array([pairs["confidence"] for pairs in bins])
        estimates = [wilson(pairs["accuracy"], int(pairs["pairs"])) for pairs in bins]
        accuracy = 100 * np.array([estimate.value for estimate in estimates])
        low = 100 * np.array([estimate.low for estimate in estimates])
        high = 100 * np.array([estimate.high for estimate in estimates])
        diagonal = np.array([50.0, 100.0])
        lines = [
            Series("model", confidence, accuracy, low, high, bars=True),
            Series("perfect", diagonal, diagonal, dashed=True),
        ]
        caption = (
            f"bars: Wilson's 95 % intervals; n = {sum(pairs['pairs'] for pairs in bins):,} pairs"
        )
    error = last.get("validation/calibration_error")
    if error is not None and not np.isnan(error):
        caption += f"; expected calibration error {100 * error:.1f} points"
    title = "calibration on validation pairs"
    return Plot(
        title, "how sure (%)", "labels that agree (soft: mean probability, %)", lines, note=caption
    )


def _typed(explanation: Explanation) -> Section:
    header = ["text", "seen", *_titles(explanation.typed, False)]
    rows = []
    for index, (text, count) in enumerate(
        zip(explanation.texts, explanation.text_counts, strict=True)
    ):
        cells = _cells(explanation.typed, index)
        rows.append([message_cell(text), TableCell(occurrences_text(count), count), *cells])
    return Section(
        "Texts that were asked for", "texts", [_fitted(Table("typed", header, rows), explanation)]
    )


def _side_by_side(explanation: Explanation) -> Section:
    first, second = explanation.rewards
    correlation = f"{rank_correlation(first.normalised, second.normalised):.2f}"
    tiles = [
        ("rank correlation", correlation, "Spearman, over distinct messages"),
        ("paid by both", f"{(first.pays & second.pays).sum():,}", "distinct messages"),
    ]
    caption = f"the {DOTS:,} most frequent" if len(explanation.messages) > DOTS else ""
    chart = html.figure("one dot a message", scatter(explanation), caption)
    return Section("Side by side", "both", [html.tiles(tiles), html.grid(chart)])


def _messages(explanation: Explanation, max_rows: int) -> Section:
    """The `max_rows` most frequent messages by descending reward; those without one come last."""
    # In the dataset's order, which equal rewards keep.
    frequent = np.sort(np.argsort(-explanation.counts, kind="stable")[:max_rows])
    ranked = frequent[np.argsort(-explanation.rewards[0].normalised[frequent], kind="stable")]
    history = any(len(reward.evaluations) > 1 for reward in explanation.rewards)
    rows = []
    for index in ranked.tolist():
        count = number_cell(explanation.counts[index], ",")
        cells = _cells(explanation.rewards, index, history)
        rows.append([message_cell(explanation.messages[index]), count, *cells])
    header = ["message", "seen (times)", *_titles(explanation.rewards, history)]
    table = Table("messages", header, rows, search=True, limit=SHOWN, empty="there are no messages")
    note = _messages_note(explanation, max_rows)
    return Section("Messages", "messages-section", [_fitted(table, explanation)], note)


def _compositions_table(name: str, compositions: Sequence[Composition]) -> Table:
    rows = []
    for composition in compositions:
        rows.append(
            [
                message_cell(composition.message),
                number_cell(composition.steps, ","),
                number_cell(composition.paid, ".3f"),
                message_cell(composition.sentence),
                number_cell(composition.sentence_reward, "+.3f"),
            ]
        )
    header = [
        "message",
        "seen (times)",
        "paid first time",
        "its worst sentence",
        "normalised, alone",
    ]
    return Table(name, header, rows, limit=SHOWN)


def _fitted(table: Table, explanation: Explanation) -> str:
    """The table as HTML, in small letters where it has the columns of two rewards."""
    return (
        f'<div class="wide">{table.html()}</div>' if len(explanation.rewards) > 1 else table.html()
    )


def _messages_note(explanation: Explanation, max_rows: int) -> str:
    note = (
        "Normalised: mean 0, variance 1 over the training messages; what has no normalisation (a probability, a table's number) is as "
        "it is. Paid: 0 at or below the threshold; the n-th time in an episode it is divided by n to the power of the count exponent. "
        "Click a column to sort."
    )
    rated_by_all = np.logical_and.reduce([reward.rated for reward in explanation.rewards])
    unrated = int((~rated_by_all).sum())
    if unrated:
        note += (
            f" {unrated:,} messages have no reward (–): one that reads more than the message is averaged over max_steps "
            "steps of the dataset, and they are on none of those."
        )
    count = len(explanation.messages)
    if max_rows < count:
        note += f" The {max_rows:,} most frequent of {count:,} messages; messages.csv has all."
    return note


def _titles(rewards: Sequence[ExplainedReward], history: bool) -> list[str]:
    """The titles of the columns that `_cells` fills."""
    titles = []
    for reward in rewards:
        columns = ["normalised", "raw", "paid first time"]
        if reward.disagreement is not None:
            columns.append("disagreement")
        if history:
            columns.append("change over training")
        if len(rewards) > 1:
            columns = [f"{column} · {reward.name}" for column in columns]
        titles += columns
    if len(rewards) == 2:
        titles.append("difference")
    return titles


def render(explanation: Explanation, written: str, max_rows: int) -> str:
    """The page; `written` is its date. The table has the `max_rows` most frequent messages."""
    rewards = explanation.rewards
    counts = explanation.counts
    sections = [_typed(explanation)] if explanation.texts else []
    for number, reward in enumerate(rewards):
        title = f"Reward: {reward.name}" if len(rewards) > 1 else "Reward"
        over_messages = html.figure(
            "distinct messages",
            histogram(reward, np.ones(len(counts)), "histogram over distinct messages"),
            "each message once",
        )
        over_steps = html.figure(
            "steps of the dataset",
            histogram(reward, counts.astype(float), "histogram over steps"),
            "each message as often as it was seen",
        )
        parts = [_overview(reward, counts), html.grid(over_messages, over_steps)]
        training = (
            _training(reward) if len(reward.curve) > 1 else [html.nothing("only one evaluation")]
        )
        sections.append(Section(title, f"reward-{number}", parts))
        sections.append(Section(f"{title} over the training", f"training-{number}", training))
    if len(rewards) == 2:
        sections.append(_side_by_side(explanation))
    for number, (reward, compositions) in enumerate(
        zip(rewards, explanation.compositions, strict=False)
    ):
        if compositions:
            title = "Paid in spite of a sentence"
            title = f"{title}: {reward.name}" if len(rewards) > 1 else title
            table = _compositions_table(f"compositions-{number}", compositions)
            sections.append(Section(title, f"composed-{number}", [table], COMPOSITIONS_NOTE))
    sections.append(_messages(explanation, max_rows))
    names = " and ".join(reward.name for reward in rewards)
    return page.render(
        "What the reward likes", f"{names} · {explanation.source} · {written}", sections
    )
