"""The page that shows what a reward model likes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motif_jax.display import charts, html, page
from motif_jax.display.charts import Plot, Series
from motif_jax.display.html import TableCell, message_cell, number_cell
from motif_jax.display.page import Section, Table
from motif_jax.display.statistics import wilson
from motif_jax.reports.explain_data import ExplainedReward, Explanation, rank_correlation, seen

BINS = 60
# Most dots of a chart with one dot per message.
DOTS = 1500
# Rows of the table of messages before "show all" is pressed.
SHOWN = 100


def histogram(reward: ExplainedReward, weights: np.ndarray, description: str) -> str:
    """Bars of the normalised reward, each message with its weight [N], and a line at the threshold, as inline SVG.

    What is paid is dark; a bar round the threshold is dark above and pale below, by what of it is paid.
    """
    values, weights = reward.normalised[reward.rated], weights[reward.rated]
    if not len(values):
        return html.nothing("there are no messages")
    low, high = float(values.min()), float(values.max())
    if reward.threshold is not None:
        low, high = min(low, reward.threshold), max(high, reward.threshold)
    margin = (high - low) * 0.02 or 0.5
    span = (low - margin, high + margin)
    scale = 100 / max(1e-12, float(weights.sum()))
    paid = np.full(len(values), True) if reward.threshold is None else values > reward.threshold
    unpaid_shares, edges = np.histogram(values[~paid], BINS, span, weights=scale * weights[~paid])
    paid_shares, _ = np.histogram(values[paid], BINS, span, weights=scale * weights[paid])
    figure, axes = charts.new_figure("normalised reward", "share (%)")
    no_share = np.zeros(BINS)
    for shares, bottoms, alpha, word in (
        (unpaid_shares, no_share, 0.35, "unpaid"),
        (paid_shares, unpaid_shares, 1.0, "paid"),
    ):
        for share, bottom, left, right in zip(shares, bottoms, edges[:-1], edges[1:], strict=True):
            if share == 0:
                continue
            width = 0.9 * (right - left)
            (bar,) = axes.bar(left, share, width, bottom, align="edge", color=charts.COLOURS[0], alpha=alpha)
            charts.set_title(bar, f"{left:.2f} to {right:.2f}: {share:.2f} % {word}")
    if reward.threshold is not None:
        label = f"threshold {reward.threshold:.2f}"
        axes.axvline(reward.threshold, color=charts.COLOURS[1], linestyle="--", label=label)
        figure.legend(loc="outside upper right", frameon=False, fontsize="small")
    return charts.inline(figure, description)


def scatter(explanation: Explanation) -> str:
    """The most frequent messages as dots: normalised reward under one model against the other, as inline SVG."""
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


def _cells(rewards: Sequence[ExplainedReward], index: int, history: bool = False) -> list[TableCell]:
    cells: list[TableCell] = []
    for reward in rewards:
        paid = float(reward.paid[index]) if reward.rated[index] else np.nan
        cells += [number_cell(reward.normalised[index], "+.3f"), number_cell(reward.raw[index], ".4g")]
        cells.append(number_cell(paid, ".3f") if paid else TableCell("—", paid))
        if reward.disagreement is not None:
            cells.append(number_cell(reward.disagreement[index], ".3f"))
        if history:
            first, last = reward.history[[0, -1], index].tolist()
            cells.append(number_cell(last - first, "+.3f"))
    if len(rewards) == 2:
        cells.append(number_cell(rewards[1].normalised[index] - rewards[0].normalised[index], "+.3f"))
    return cells


def _overview(reward: ExplainedReward, counts: np.ndarray) -> str:
    above, unrated = reward.pays, ~reward.rated
    share = 100 * counts[above].sum() / max(1, int(counts.sum()))
    tiles = [
        ("messages", f"{len(reward.raw):,}", "distinct"),
        ("pay something", f"{above.sum():,}", f"{share:.1f} % of the dataset's steps"),
        *reward.facts,
    ]
    if unrated.any():
        tiles.append(("not rated", f"{unrated.sum():,}", "messages on none of the steps that were looked at"))
    if reward.disagreement is not None and not unrated.all():
        mean = float(np.average(reward.disagreement[~unrated], weights=np.maximum(counts[~unrated], 1)))
        tiles.append(("disagreement", f"{mean:.3f}", "mean over the dataset's steps"))
    return html.tiles(tiles)


def _training(reward: ExplainedReward) -> list[Plot]:
    epochs = np.array([row["epoch"] for row in reward.curve], float)

    def line(name: str, key: str, scale: float = 1.0, dashed: bool = False) -> Series:
        values = np.array([row.get(key, np.nan) for row in reward.curve], float)
        return Series(name, epochs, scale * values, dashed=dashed)

    parts = {"training": "train", "validation": "validation", "new messages only": "validation_unseen"}
    accuracies = [line(name, f"{part}/accuracy", 100) for name, part in parts.items()]
    accuracies.append(line("against score", "validation/score_accuracy", 100, True))
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
    header = ["text", "seen", *_titles(explanation.typed, False)]
    rows = [
        [message_cell(text), TableCell(seen(count), count), *_cells(explanation.typed, i)]
        for i, (text, count) in enumerate(zip(explanation.texts, explanation.text_counts, strict=True))
    ]
    return Section("Texts that were asked for", "texts", [_fitted(Table("typed", header, rows), explanation)])


def _side_by_side(explanation: Explanation) -> Section:
    first, second = explanation.rewards
    alike = f"{rank_correlation(first.normalised, second.normalised):.2f}"
    numbers = [("rank correlation", alike, "Spearman, over distinct messages")]
    numbers.append(("paid by both", f"{(first.pays & second.pays).sum():,}", "distinct messages"))
    caption = f"the {DOTS:,} most frequent" if len(explanation.messages) > DOTS else ""
    chart = html.figure("one dot a message", scatter(explanation), caption)
    return Section("Side by side", "both", [html.tiles(numbers), html.grid(chart)])


def _messages(explanation: Explanation, max_rows: int) -> Section:
    """The `max_rows` most frequent messages by descending reward; those without one come last."""
    kept = np.sort(np.argsort(-explanation.counts, kind="stable")[:max_rows])
    kept = kept[np.argsort(-explanation.rewards[0].normalised[kept], kind="stable")]
    history = any(len(reward.evaluations) > 1 for reward in explanation.rewards)
    rows = [
        [
            message_cell(explanation.messages[i]),
            number_cell(explanation.counts[i], ","),
            *_cells(explanation.rewards, i, history),
        ]
        for i in kept.tolist()
    ]
    header = ["message", "seen (times)", *_titles(explanation.rewards, history)]
    table = Table("messages", header, rows, search=True, limit=SHOWN, empty="there are no messages")
    return Section(
        "Messages", "messages-section", [_fitted(table, explanation)], _messages_note(explanation, max_rows)
    )


def _fitted(table: Table, explanation: Explanation) -> str:
    return f'<div class="wide">{table.html()}</div>' if len(explanation.rewards) > 1 else table.html()


def _messages_note(explanation: Explanation, max_rows: int) -> str:
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
    if max_rows < (count := len(explanation.messages)):
        note += f" The {max_rows:,} most frequent of {count:,} messages; messages.csv has all."
    return note


def _titles(rewards: Sequence[ExplainedReward], history: bool) -> list[str]:
    names = []
    for reward in rewards:
        shown = ["normalised", "raw", "paid first time"]
        shown += ["disagreement"] if reward.disagreement is not None else []
        shown += ["change over training"] if history else []
        names += [f"{name} · {reward.name}" if len(rewards) > 1 else name for name in shown]
    return names + (["difference"] if len(rewards) == 2 else [])


def render(explanation: Explanation, written: str, max_rows: int) -> str:
    """The page; `written` is its date. The table has the `max_rows` most frequent messages."""
    rewards, counts = explanation.rewards, explanation.counts
    sections = [_typed(explanation)] if explanation.texts else []
    for number, reward in enumerate(rewards):
        title = f"Reward: {reward.name}" if len(rewards) > 1 else "Reward"
        once = histogram(reward, np.ones(len(counts)), "histogram over distinct messages")
        often = histogram(reward, counts.astype(float), "histogram over steps")
        once = html.figure("distinct messages", once, "each message once")
        often = html.figure("steps of the dataset", often, "each message as often as it was seen")
        shown = [_overview(reward, counts), html.grid(once, often)]
        training = _training(reward) if len(reward.curve) > 1 else [html.nothing("only one evaluation")]
        sections.append(Section(title, f"reward-{number}", shown))
        sections.append(Section(f"{title} over the training", f"training-{number}", training))
    sections += [_side_by_side(explanation)] if len(rewards) == 2 else []
    sections.append(_messages(explanation, max_rows))
    names = " and ".join(reward.name for reward in rewards)
    return page.render("What the reward likes", f"{names} · {explanation.source} · {written}", sections)
