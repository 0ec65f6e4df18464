"""Sections of a run's page that show the training of an agent and what it paid for, of a language
model, and of an agent that learns from dialogues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.core.metric_files import Curve
from motif_jax.display import html
from motif_jax.display.charts import Plot, Series
from motif_jax.display.html import TableCell, message_cell, number_cell
from motif_jax.display.measures import (
    format_value,
    in_order,
    is_rate,
    measure,
    progress_keys,
    with_unit,
)
from motif_jax.display.page import Fold, Section, Table
from motif_jax.play.evaluation_files import REWARD
from motif_jax.reports.curves import LEAST, Smoothed, smooth
from motif_jax.reports.run_data import RunData
from motif_jax.rl.paid_texts import PaidRow, lately, most_paid

# Title -> (unit, metric -> legend), in the page's order; docs/metrics.md explains the metrics.
Groups = Mapping[str, tuple[str, Mapping[str, str]]]
METRIC_GROUPS: Groups = {
    "speed": ("environment steps per second", {"throughput/env_steps_per_second": ""}),
    "policy lag": ("updates", {"lag/mean": "mean", "lag/max": "largest"}),
    "intrinsic against extrinsic reward": (
        "reward a step, before its coefficient",
        {"reward/extrinsic_mean": "extrinsic", "reward/intrinsic_mean": "intrinsic"},
    ),
    "rewarded steps": ("share of steps", {"reward/rewarded_share": ""}),
    "entropy of the policy": ("nats", {"policy/entropy": ""}),
    "losses": (
        "loss, with its coefficient",
        {"loss/policy": "policy", "loss/value": "value", "loss/exploration": "exploration"},
    ),
    "change of the policy": ("nats", {"policy/kl": "divergence from the behaviour"}),
    "ratios of the policy": (
        "probability now over probability when played",
        {
            "policy/ratio_mean": "mean",
            "policy/ratio_min": "smallest",
            "policy/ratio_max": "largest",
        },
    ),
    "where the time goes": (
        "share of time",
        {
            "learner/wait_share": "learner waits",
            "inference/wait_share": "inference waits",
            "batcher/wait_share": "batches wait",
        },
    ),
    "value function": ("explained variance", {"value/explained_variance": ""}),
    "gradient": ("norm before the clip", {"optimizer/gradient_norm": ""}),
}
_SIDES = {"train/": "training", "validation/": "held out"}


def _both(name: str) -> dict[str, str]:
    return {f"{side}{name}": legend for side, legend in _SIDES.items()}


# The same for a language model's training.
LANGUAGE_GROUPS: Groups = {
    "loss": ("cross-entropy (nats a token)", _both("loss")),
    "perplexity": ("perplexity", _both("perplexity")),
    "accuracy": ("share of tokens", _both("accuracy")),
    "learning rate": ("learning rate", {"optimizer/learning_rate": ""}),
    "gradient": ("norm before the clip", {"train/gradient_norm": ""}),
}
# Prefix of metrics of an agent that learns from dialogues, a chart for each metric.
_SHOWN = "games/"
# Of a metric that is written with its range.
_PARTS = ("max", "mean", "min")
# Charts of a training that are not folded.
CURVES = 4
_BANDS = (
    f"Each point of a curve is the mean over a stretch of steps; of episodes at least {LEAST} are in it (a fifth of all where there are fewer "
    f"than {5 * LEAST}), and the band is the 95 % interval of their mean."
)
_UNCHANGED = "no metric has changed yet: a curve begins with the second row of metrics"
_STEPS = "environment steps"
_UPDATES = "step of the optimiser"
# Texts that have a line of their own.
_PAID_TEXTS = 6
# Points of a line: the rows of a long training are taken together.
_PAID_POINTS = 60
_PAID_HEADER = ("message", "share of what was paid", "paid", "steps")


def metric_plots(
    curves: Mapping[str, Curve], groups: Groups, x_label: str, file: str = ""
) -> list[Plot]:
    """A chart per group that has metrics which change; its file's name begins with `file`, '' for
    no file.
    """
    plots = []
    for title, (unit, members) in groups.items():
        smoothed = {
            name: smooth(curves[name], 120, band=False) for name in members if name in curves
        }
        if not any(len(curve.x) for curve in smoothed.values()):
            continue
        # The legend of a single line would repeat the title.
        lines = [
            curve.series(members[name] if len(smoothed) > 1 else "")
            for name, curve in smoothed.items()
        ]
        file_name = f"{file}_{title.replace(' ', '_')}" if file else ""
        method = _method({members[name]: curve for name, curve in smoothed.items()})
        plots.append(Plot(title, x_label, unit or title, lines, file=file_name, method=method))
    return [plot for plot in plots if not plot.constant]


def _method(curves: Mapping[str, Smoothed]) -> str:
    """How the curves (by their legends) of a chart were averaged: once where all were alike."""
    captions = {legend: curve.caption("values") for legend, curve in curves.items() if len(curve.x)}
    if len(set(captions.values())) == 1:
        return next(iter(captions.values()))
    return ". ".join(f"{legend}: {caption}" for legend, caption in captions.items())


def episode_plots(data: RunData, keys: Iterable[str], file: str = "") -> list[Plot]:
    """A chart for each of `keys` that changes over the training's episodes."""
    plots = []
    for key in keys:
        if key not in data.episodes or not np.isfinite(data.episodes[key].y).any():
            continue
        values = data.episodes[key].y
        rate = is_rate(key, values[np.isfinite(values)])
        curve = smooth(data.episodes[key], rate=rate)
        described = measure(key)
        plots.append(
            Plot(
                described.title,
                _STEPS,
                with_unit(described),
                [curve.series()],
                note=described.meaning,
                file=f"{file}_{key}" if file else "",
                method=curve.caption("episodes"),
            )
        )
    return [plot for plot in plots if not plot.constant]


def constants(episodes: Mapping[str, Curve]) -> str:
    """The measures that were the same in every episode, in words; '' without any."""
    constant = []
    for key in in_order(episodes):
        values = episodes[key].y[np.isfinite(episodes[key].y)]
        if len(values) and np.ptp(values) == 0:
            constant.append(f"{measure(key).title} {format_value(float(values[0]))}")
    return f"The same in every episode: {', '.join(constant)}." if constant else ""


def training_section(data: RunData) -> Section:
    """The agent's training: `CURVES` charts of reward and progress, all others in a fold."""
    if not data.metrics and not data.episodes:
        return Section("Agent training", "training", [html.nothing("no agent run was given")])
    # In the page's order: the first `CURVES` charts are not folded.
    episode_keys = dict.fromkeys(
        [
            REWARD,
            *progress_keys(data.episodes, data.progress),
            *in_order(data.episodes),
        ]
    )
    grouped = {name for _, members in METRIC_GROUPS.values() for name in members}
    others: Groups = {
        name: ("", {name: ""}) for name in sorted(data.metrics) if name not in grouped
    }
    curves = episode_plots(data, episode_keys, "training")
    curves += metric_plots(data.metrics, METRIC_GROUPS, _STEPS, "metric")
    curves_without_file = metric_plots(data.metrics, others, _STEPS)

    parts: list[Any] = curves[:CURVES]
    folded = [*curves[CURVES:], *curves_without_file]
    if not parts and not folded:
        parts.append(html.nothing(_UNCHANGED))
    if folded:
        parts.append(Fold(f"all other curves ({len(folded)})", folded))
    note = f"{_BANDS} {constants(data.episodes)}".strip()
    parts.append(f'<p class="explain">{html.escape(note)}</p>')
    return Section("Agent training", "training", parts)


def paid_section(rows: Sequence[PaidRow], warning: str = "") -> Section | None:
    """Shares of the most paid texts over the training, and a table of the last tenth; None where
    nothing was paid.
    """
    paying = [row for row in rows if row.total > 0]
    if not paying:
        return None
    recent = lately(paying)
    total = _paid_in_all(recent)
    cells = []
    for text, steps, paid in most_paid(recent):
        share = paid / total
        cells.append(
            (
                message_cell(text),
                TableCell(f"{100 * share:.1f} %", share),
                TableCell(format_value(paid), paid),
                number_cell(steps, ","),
            )
        )
    # A row has what was paid since the row before, whether that paid something or not.
    earlier = [row.step for row in rows if row.step < recent[0].step]
    first_step = earlier[-1] if earlier else 0
    title = f"what was paid most between steps {first_step:,} and {recent[-1].step:,}"
    table = Table("paid-lately", _PAID_HEADER, cells, title, limit=10)
    note = (
        "All that the training's steps were paid, discounted by count and without the coefficient, of the first host's games. "
        "A line or row counts the twenty most paid texts of each row of the log."
    )
    if warning:
        note = f"{warning[0].upper()}{warning[1:]}. {note}"
    return Section("What the training paid for", "paid", [_paid_shares(paying), table], note)


def _paid_in_all(rows: Sequence[PaidRow]) -> float:
    return sum(row.total for row in rows)


def _paid_shares(rows: Sequence[PaidRow]) -> Plot:
    """The share of each of the most paid texts in what was paid, over the training."""
    parts = [
        [rows[index] for index in part]
        for part in np.array_split(np.arange(len(rows)), _PAID_POINTS)
        if len(part)
    ]
    steps = np.array([part[-1].step for part in parts], np.float64)
    shares = []
    for part in parts:
        total = _paid_in_all(part)
        shares.append({entry.text: entry.paid / total for entry in most_paid(part)})
    lines = []
    for entry in most_paid(rows)[:_PAID_TEXTS]:
        values = np.array([100 * share.get(entry.text, 0.0) for share in shares])
        lines.append(Series(entry.text or "(no message)", steps, values))
    return Plot(
        "what the training paid for",
        "environment steps",
        "share of what was paid (%)",
        lines,
        file="paid_texts",
    )


def _charts(plots: list[Plot]) -> list[Any]:
    """The charts as the parts of a section, or the reason why there are none."""
    return [*plots] if plots else [html.nothing(_UNCHANGED)]


def language_section(curves: Mapping[str, Curve]) -> Section | None:
    """The training of a language model; None without curves."""
    if not curves:
        return None
    plots = metric_plots(curves, LANGUAGE_GROUPS, _UPDATES, "language")
    return Section("Language model training", "language", _charts(plots))


def dialogues_section(curves: Mapping[str, Curve]) -> Section | None:
    """The training of an agent that learns from dialogues; None without curves."""
    if not curves:
        return None
    # Held-out metrics first: their order decides that of the charts.
    names = [
        name.removeprefix(side)
        for side in reversed(_SIDES)
        for name in curves
        if name.startswith(side)
    ]
    # One chart shows the range of what is written as NAME_mean, NAME_min and NAME_max.
    ranges = [name.removesuffix("_mean") for name in names if name.endswith("_mean")]
    of_ranges = {f"{name}_{part}" for name in ranges for part in _PARTS}
    groups: dict[str, Mapping[str, str]] = {}
    for name in names:
        if name not in of_ranges:
            groups[name] = _both(name)
    for name in ranges:
        groups[f"range of {name}"] = {f"train/{name}_{part}": part for part in _PARTS}
    for name in curves:
        if name.startswith(_SHOWN):
            groups[name.replace("/", ", ")] = {name: ""}
    titled: Groups = {name.replace("_", " "): ("", members) for name, members in groups.items()}
    plots = metric_plots(curves, titled, _UPDATES)
    return Section("Learning from dialogues", "text", _charts(plots))
