"""The page that shows what a reward model likes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from motif_jax.reports import charts, html
from motif_jax.reports.charts import Series
from motif_jax.reports.html import Cell, Markup

BINS = 60
_SPARK_WIDTH, _SPARK_HEIGHT = 90, 22


@dataclasses.dataclass(frozen=True)
class ExplainedReward:
    """What one reward model says about N messages.

    Attributes:
      name: how the page calls it.
      raw, normalised: [N] each.
      threshold: of the normalised reward, or None.
      quantile: the threshold's level, or None.
      disagreement: [N], standard deviation of an ensemble's normalised rewards; None for a single model.
      history: [E, N], normalised rewards at E evaluations of the training, oldest first.
      evaluations: numbers of these evaluations [E].
      curve: rows of metrics of all evaluations, as the checkpoint holds them.
      facts: (label, value, note) shown at the top.
    """

    name: str
    raw: np.ndarray
    normalised: np.ndarray
    threshold: float | None
    quantile: float | None
    disagreement: np.ndarray | None
    history: np.ndarray
    evaluations: Sequence[int]
    curve: Sequence[dict[str, Any]]
    facts: Sequence[tuple[str, str, str]] = ()

    @property
    def paid(self) -> np.ndarray:
        """The intrinsic reward [N]: 0 unless strictly above the threshold."""
        if self.threshold is None:
            return self.normalised
        return np.where(self.normalised > np.float32(self.threshold), self.normalised, 0.0)


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Everything on the page.

    Attributes:
      messages: texts [N].
      counts: how often each occurs in the dataset, int [N].
      rewards: one or two models.
      texts: messages that were asked for, with one `ExplainedReward` a model.
      typed: those models' answers, in the order of `rewards`.
      source: where the messages come from.
    """

    messages: Sequence[str]
    counts: np.ndarray
    rewards: Sequence[ExplainedReward]
    texts: Sequence[str] = ()
    typed: Sequence[ExplainedReward] = ()
    source: str = ""


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation of two arrays [N], equal values sharing their mean rank; NaN below 2."""
    if len(first) < 2:
        return float("nan")
    ranks = [_ranks(values) for values in (first, second)]
    deviations = [r.std() for r in ranks]
    if min(deviations) == 0:
        return float("nan")
    return float(np.mean((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())) / np.prod(deviations))


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]


def histogram(reward: ExplainedReward, weights: np.ndarray, description: str) -> str:
    """Bars of the normalised reward with a line at the threshold, as inline SVG.

    Args:
      reward: what to show.
      weights: [N], ones to count distinct messages, their counts to count steps.
      description: read out by screen readers.
    """
    values = reward.normalised
    if not len(values):
        return charts.empty_chart("there are no messages")
    low, high = float(values.min()), float(values.max())
    if reward.threshold is not None:
        low, high = min(low, reward.threshold), max(high, reward.threshold)
    margin = (high - low) * 0.02 or 0.5
    shares, edges = np.histogram(values, BINS, (low - margin, high + margin), weights=weights)
    shares = 100 * shares / max(1e-12, shares.sum())
    axes = charts._Axes((edges[0], edges[-1]), (0.0, float(shares.max()) * 1.05 or 1.0))
    parts = [axes.frame("normalised reward", "share (%)")]
    for share, left, right in zip(shares, edges[:-1], edges[1:], strict=True):
        if share:
            width = max(0.8, axes.x(right) - axes.x(left) - 0.6)
            faint = reward.threshold is not None and right <= reward.threshold
            parts.append(
                f'<rect class="c0" style="stroke:none{";opacity:.35" if faint else ""}" x="{axes.x(left):.1f}" y="{axes.y(share):.1f}" '
                f'width="{width:.1f}" height="{axes.y(0) - axes.y(share):.1f}"><title>{left:.2f} to {right:.2f}: '
                f"{share:.2f} %</title></rect>"
            )
    if reward.threshold is not None:
        at = axes.x(reward.threshold)
        right_half = at > charts.WIDTH / 2
        parts.append(
            f'<line class="c1" style="stroke-width:2;stroke-dasharray:6 4" x1="{at:.1f}" x2="{at:.1f}" y1="{axes.y(axes.y_range[1]):.1f}" '
            f'y2="{axes.y(0):.1f}"/><text class="label" x="{at - 4 if right_half else at + 4:.1f}" y="22" '
            f'text-anchor="{"end" if right_half else "start"}">threshold {reward.threshold:.2f}</text>'
        )
    return (
        f'<svg class="chart" viewBox="0 0 {charts.WIDTH} {charts.HEIGHT}" role="img" '
        f'aria-label="{escape(description)}">{"".join(parts)}</svg>'
    )


def scatter(
    first: ExplainedReward, second: ExplainedReward, messages: Sequence[str], most: int = 1500
) -> str:
    """One dot a message: its normalised reward under both models, as inline SVG."""
    if not len(first.normalised):
        return charts.empty_chart("there are no messages")
    x, y = first.normalised[:most], second.normalised[:most]
    axes = charts._Axes(charts._range([x]), charts._range([y]))
    dots = "".join(
        f'<circle class="dot c0" r="2.5" cx="{axes.x(a):.1f}" cy="{axes.y(b):.1f}"><title>{escape(text)}</title></circle>'
        for a, b, text in zip(x, y, messages[:most], strict=True)
    )
    return (
        f'<svg class="chart" viewBox="0 0 {charts.WIDTH} {charts.HEIGHT}" role="img" '
        f'aria-label="rewards of both models">{axes.frame(first.name, second.name)}{dots}</svg>'
    )


def sparkline(values: np.ndarray) -> str:
    """A small line of values [E] over the training; '' below two of them."""
    if len(values) < 2:
        return ""
    low, span = float(values.min()), float(np.ptp(values)) or 1.0
    step = _SPARK_WIDTH / (len(values) - 1)
    points = " ".join(
        f"{i * step:.1f},{2 + (_SPARK_HEIGHT - 4) * (1 - (v - low) / span):.1f}" for i, v in enumerate(values)
    )
    title = " → ".join(f"{v:+.2f}" for v in values)
    return (
        f'<svg class="spark" viewBox="0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}" width="{_SPARK_WIDTH}" '
        f'height="{_SPARK_HEIGHT}"><title>{title}</title><polyline class="line c0" fill="none" points="{points}"/></svg>'
    )


def _columns(rewards: Sequence[ExplainedReward], history: bool) -> list[str]:
    names = []
    for reward in rewards:
        of = f" · {reward.name}" if len(rewards) > 1 else ""
        names += [f"normalised{of}", f"raw{of}", f"paid first time{of}"]
        names += [f"disagreement{of}"] if reward.disagreement is not None else []
        names += [f"over training{of}"] if history else []
    return names + (["difference"] if len(rewards) == 2 else [])


def _cells(rewards: Sequence[ExplainedReward], index: int, history: bool) -> list[Cell | Markup]:
    cells: list[Cell | Markup] = []
    for reward in rewards:
        value, paid = float(reward.normalised[index]), float(reward.paid[index])
        cells.append(Cell(f"{value:+.3f}", value))
        cells.append(Cell(f"{reward.raw[index]:.4g}", float(reward.raw[index])))
        cells.append(Cell(f"{paid:.3f}" if paid else "—", paid))
        if reward.disagreement is not None:
            spread = float(reward.disagreement[index])
            cells.append(Cell(f"{spread:.3f}", spread))
        if history:
            cells.append(Markup(sparkline(reward.history[:, index])))
    if len(rewards) == 2:
        difference = float(rewards[1].normalised[index] - rewards[0].normalised[index])
        cells.append(Cell(f"{difference:+.3f}", difference))
    return cells


def message_table(explanation: Explanation, max_rows: int) -> str:
    """All messages with search and sorting, the best liked first; a line marks the threshold."""
    first = explanation.rewards[0]
    kept = np.sort(np.argsort(-explanation.counts, kind="stable")[:max_rows])
    kept = kept[np.argsort(-first.normalised[kept], kind="stable")]
    history = any(len(reward.evaluations) > 1 for reward in explanation.rewards)
    header = ["message", "seen (times)", *_columns(explanation.rewards, history)]
    rows: list[list[Cell | Markup]] = []
    line_drawn = first.threshold is None
    for index in kept:
        if not line_drawn and first.normalised[index] <= first.threshold:
            line_drawn = True
            if rows:
                rows.append(_threshold_row(first, len(header)))
        count = int(explanation.counts[index])
        row: list[Cell | Markup] = [Cell(explanation.messages[index] or "(no message)", code=True)]
        rows.append([*row, Cell(f"{count:,}", float(count)), *_cells(explanation.rewards, index, history)])
    return html.table(header, rows, "messages", search=True, limit=100, empty="there are no messages")


def _threshold_row(reward: ExplainedReward, columns: int) -> list[Cell | Markup]:
    text = f"threshold {reward.threshold:.3f}: what stands below pays nothing"
    cells: list[Cell | Markup] = [Cell(f"── {text} ──"), *(Cell("") for _ in range(columns - 1))]
    cells[2] = Cell(f"{reward.threshold:+.3f}", float(reward.threshold or 0.0))
    return cells


def _overview(reward: ExplainedReward, counts: np.ndarray) -> str:
    steps = max(1, int(counts.sum()))
    above = reward.paid != 0
    tiles = [
        ("messages", f"{len(reward.raw):,}", "distinct"),
        (
            "pay something",
            f"{above.sum():,}",
            f"{100 * counts[above].sum() / steps:.1f} % of the dataset's steps",
        ),
        *reward.facts,
    ]
    if reward.disagreement is not None and len(reward.disagreement):
        mean = float(np.average(reward.disagreement, weights=np.maximum(counts, 1)))
        tiles.append(("disagreement", f"{mean:.3f}", "mean over the dataset's steps"))
    return html.tiles(tiles)


def _training(reward: ExplainedReward) -> str:
    if len(reward.curve) < 2:
        return charts.empty_chart("only one evaluation")
    epochs = np.array([row["epoch"] for row in reward.curve], float)

    def line(name: str, key: str, scale: float = 1.0, dashed: bool = False) -> Series:
        values = [row.get(key) for row in reward.curve]
        return Series(
            name, epochs, scale * np.array([np.nan if v is None else v for v in values], float), dashed=dashed
        )

    levels = (5, 25, 50, 75, 95)
    return html.grid(
        html.figure(
            "accuracy without ties",
            charts.line_chart(
                [
                    line("training", "train/accuracy", 100),
                    line("validation", "validation/accuracy", 100),
                    line("new messages only", "validation_unseen/accuracy", 100),
                    line("against score", "validation/score_accuracy", 100, True),
                ],
                "epoch", "correct (%)", "accuracies over the training",
            ),
        ),
        html.figure(
            "loss",
            charts.line_chart(
                [line("training", "train/loss"), line("validation", "validation/loss")],
                "epoch", "cross-entropy (nats per pair)", "losses over the training",
            ),
            "0.693 for a model that knows nothing",
        ),
        html.figure(
            "quantiles of the distinct messages",
            charts.line_chart(
                [line(f"{level} %", f"reward/quantile_{level:02d}") for level in levels],
                "epoch", "normalised reward", "quantiles over the training",
            ),
        ),
        _calibration(reward),
    )  # fmt: skip


def _calibration(reward: ExplainedReward) -> str:
    bins: list[dict[str, float]] = reward.curve[-1].get("calibration") or []
    error = reward.curve[-1].get("validation/calibration_error")
    lines = [
        Series(
            "model",
            np.array([b["confidence"] for b in bins]) * 100,
            np.array([b["accuracy"] for b in bins]) * 100,
        ),
        Series("perfect", np.array([50.0, 100.0]), np.array([50.0, 100.0]), dashed=True),
    ]
    chart = charts.line_chart(lines if bins else [], "how sure (%)", "how often right (%)", "calibration")
    caption = (
        "" if error is None or error != error else f"expected calibration error {100 * error:.1f} points"
    )
    return html.figure("calibration on validation pairs", chart, caption)


def render(explanation: Explanation, written: str, max_rows: int = 5000) -> str:
    """Returns the page.

    Args:
      explanation: what to show.
      written: when, for the line below the title.
      max_rows: messages in the table, the most frequent ones.
    """
    rewards, counts = explanation.rewards, explanation.counts
    sections, links = [], {"messages-section": "messages"}
    if explanation.texts:
        rows = [
            [Cell(text or "(no message)", code=True), *_cells(explanation.typed, i, False)]
            for i, text in enumerate(explanation.texts)
        ]
        table = html.table(["text", *_columns(explanation.typed, False)], rows, "typed")
        sections.append(html.section("Texts that were asked for", "texts", table))
        links = {"texts": "texts", **links}
    for number, reward in enumerate(rewards):
        name = f"reward-{number}"
        figures = html.grid(
            html.figure(
                "distinct messages",
                histogram(reward, np.ones(len(counts)), "histogram over distinct messages"),
                "each message once",
            ),
            html.figure(
                "steps of the dataset",
                histogram(reward, counts.astype(float), "histogram over steps"),
                "each message as often as it was seen",
            ),
        )
        title = f"Reward: {reward.name}" if len(rewards) > 1 else "Reward"
        sections.append(html.section(title, name, _overview(reward, counts), figures))
        sections.append(html.section(f"{title} over the training", f"training-{number}", _training(reward)))
        links |= {name: title.lower(), f"training-{number}": "its training"}
    if len(rewards) == 2:
        correlation = rank_correlation(rewards[0].normalised, rewards[1].normalised)
        both = int(((rewards[0].paid != 0) & (rewards[1].paid != 0)).sum())
        tiles = html.tiles(
            [
                ("rank correlation", f"{correlation:.2f}", "Spearman, over distinct messages"),
                ("paid by both", f"{both:,}", "distinct messages"),
            ]
        )
        chart = html.figure("one dot a message", scatter(rewards[0], rewards[1], explanation.messages))
        sections.append(html.section("Side by side", "both", tiles, html.grid(chart)))
        links["both"] = "side by side"
    shown = min(max_rows, len(explanation.messages))
    note = (
        "Normalised: mean 0, variance 1 over the training messages. Paid: 0 at or below the threshold; the n-th time in an "
        "episode it is divided by n to the power of the count exponent. Click a column to sort."
    )
    if shown < len(explanation.messages):
        note += (
            f" The {shown:,} most frequent of {len(explanation.messages):,} messages; messages.csv has all."
        )
    sections.append(
        html.section("Messages", "messages-section", message_table(explanation, max_rows), note=note)
    )
    names = " and ".join(reward.name for reward in rewards)
    return html.page("What the reward likes", f"{names} · {explanation.source} · {written}", sections, links)
