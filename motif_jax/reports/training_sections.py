"""Sections of a run's page that show training, messages, data and origin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from motif_jax.reports import charts, hacking, html
from motif_jax.reports.charts import Series
from motif_jax.reports.html import TableCell
from motif_jax.reports.measures import Measure, format_value, in_order, measure, progress_keys, with_unit
from motif_jax.reports.messages import MessageTally
from motif_jax.reports.run_data import LikedMessage, RunData
from motif_jax.reports.smoothing import Smoothed, smooth
from motif_jax.support.curves import Curve

# (title, unit, [(metric, legend)]) in the order of the page; docs/metrics.md says what each is.
METRIC_GROUPS: Sequence[tuple[str, str, Sequence[tuple[str, str]]]] = (
    ("speed", "environment steps per second", [("throughput/env_steps_per_second", "")]),
    ("policy lag", "updates", [("lag/mean", "mean"), ("lag/max", "largest")]),
    (
        "intrinsic against extrinsic reward",
        "reward a step, before its coefficient",
        [("reward/extrinsic_mean", "extrinsic"), ("reward/intrinsic_mean", "intrinsic")],
    ),
    ("rewarded steps", "share of steps", [("reward/rewarded_share", "")]),
    ("entropy of the policy", "nats", [("policy/entropy", "")]),
    (
        "losses",
        "loss, with its coefficient",
        [("loss/policy", "policy"), ("loss/value", "value"), ("loss/exploration", "exploration")],
    ),
    ("change of the policy", "nats", [("policy/kl", "divergence from the behaviour")]),
    (
        "ratios of the policy",
        "probability now over probability when played",
        [
            ("policy/ratio_mean", "mean"),
            ("policy/ratio_min", "smallest"),
            ("policy/ratio_max", "largest"),
        ],
    ),
    (
        "where the time goes",
        "share of time",
        [
            ("learner/wait_share", "learner waits"),
            ("inference/wait_share", "inference waits"),
            ("batcher/wait_share", "batches wait"),
        ],
    ),
    ("value function", "explained variance", [("value/explained_variance", "")]),
    ("gradient", "norm before the clip", [("optimizer/gradient_norm", "")]),
)


def metric_lines(curves: Sequence[tuple[str, Curve]]) -> list[Series]:
    """Returns (legend, curve) as lines of a chart; a single one needs no legend."""
    return [_metric(curve).series(name if len(curves) > 1 else "") for name, curve in curves]


def _metric(curve: Curve) -> Smoothed:
    return smooth(curve, 120, band=False)


def metric_caption(curves: Sequence[tuple[str, Curve]]) -> str:
    """Says how `metric_lines` are smoothed, by the first of them."""
    smoothed = _metric(curves[0][1])
    return smoothed.caption("values") if len(smoothed.x) else ""


def episode_curves(data: RunData, keys: Iterable[str]) -> Iterator[tuple[Measure, Smoothed]]:
    """Yields those of `keys` that the training's episodes have a number for, with its smoothed curve."""
    for key in keys:
        if key in data.episodes and np.isfinite(data.episodes[key].y).any():
            yield measure(key), smooth(data.episodes[key], rate=key == "success")


def metric_groups(data: RunData) -> Iterator[tuple[str, str, list[tuple[str, Curve]]]]:
    """Yields (title, unit, [(legend, curve)]) of the groups of metrics that the training wrote."""
    for title, unit, members in METRIC_GROUPS:
        present = [(legend, data.metrics[name]) for name, legend in members if name in data.metrics]
        if present:
            yield title, unit, present


def _metric_figure(title: str, unit: str, curves: Sequence[tuple[str, Curve]]) -> str:
    chart = charts.line_chart(metric_lines(curves), "environment steps", unit, title)
    return html.figure(title, chart, metric_caption(curves))


def _episode_figure(what: Measure, smoothed: Smoothed) -> str:
    lines = [smoothed.series()]
    chart = charts.line_chart(lines, "environment steps", with_unit(what), what.title)
    return html.figure(what.title, chart, smoothed.caption("episodes"))


def training_section(data: RunData) -> str:
    """Curves of the agent's training; metrics that are in no group follow in a part that opens on a click."""
    if not data.metrics and not data.episodes:
        return html.section("Agent training", "training", charts.empty_chart("no agent run was given"))
    figures = [_episode_figure(*curve) for curve in episode_curves(data, in_order(data.episodes))]
    figures += [_metric_figure(*group) for group in metric_groups(data)]
    shown = {name for _, _, members in METRIC_GROUPS for name, _ in members}
    rest = [name for name in sorted(data.metrics) if name not in shown]
    others = ""
    if rest:
        small = html.grid(*(_metric_figure(name, "", [("", data.metrics[name])]) for name in rest))
        others = f"<details><summary>all other metrics ({len(rest)})</summary><div class='inside'>{small}</div></details>"
    return html.section("Agent training", "training", html.grid(*figures), others)


def by_epoch(name: str, table: Mapping[str, np.ndarray], column: str, scale: float = 1.0) -> list[Series]:
    """Returns a column of a published CSV file over epochs, [] where it is missing.

    There is a row an epoch; the validation file has one more, before the first, and counts updates in its own column.
    """
    if column not in table:
        return []
    first = 0.0 if "iter" in table else 1.0
    return [Series(name, np.arange(len(table[column])) + first, table[column] * scale)]


def reward_section(data: RunData) -> str:
    """Loss and accuracy of the reward network."""
    train, validation = data.reward_train, data.reward_validation
    if not train and not validation:
        return html.section("Reward training", "reward", charts.empty_chart("no reward run was given"))

    loss = [
        *by_epoch("training", train, "total_train_loss"),
        *by_epoch("validation", validation, "total_val_loss"),
    ]
    accuracy = [
        *by_epoch("training", train, "total_train_acc", 100),
        *by_epoch("validation", validation, "validation_accs", 100),
    ]
    return html.section(
        "Reward training",
        "reward",
        html.grid(
            html.figure(
                "loss",
                charts.line_chart(
                    loss, "epoch", "cross-entropy (nats per pair)", "loss of the reward network"
                ),
                "pairs of observations; a network that knows nothing has 0.693",
            ),
            html.figure(
                "accuracy",
                charts.line_chart(accuracy, "epoch", "correct (%)", "accuracy of the reward network"),
                "share of pairs ordered as the annotator did, ties left out; chance is 50 %",
            ),
        ),
    )


_RANKED = ("rank", "message", "reward (normalised)", "paid first time", "seen in dataset (times)")
_PAID = ("message", "reward paid in all", "share", "seen (times)", "episodes", "paid first time")


def _own(
    data: RunData, header: tuple[str, ...], rows: Sequence[tuple[TableCell, ...]]
) -> tuple[tuple[str, ...], Sequence[tuple[TableCell, ...]]]:
    """A table without its last column, what a message pays the first time, where that is not a number of the message."""
    return (header[:-1], [row[:-1] for row in rows]) if data.reward_reads else (header, rows)


def _ranked_rows(liked: Sequence[LikedMessage]) -> list[tuple[TableCell, ...]]:
    return [
        (
            TableCell(str(place), float(place)),
            TableCell(m.text or "(no message)", code=True),
            TableCell(f"{m.normalised:+.2f}", m.normalised),
            TableCell(f"{round(m.paid, 2) + 0.0:.2f}", m.paid),
            TableCell(f"{m.count:,}", float(m.count)),
        )
        for place, m in enumerate(sorted(liked, key=lambda m: -m.normalised), start=1)
    ]


def _paid_rows(tallies: Sequence[MessageTally], top: int) -> list[tuple[TableCell, ...]]:
    # Without what cost something: where rewards can be negative the sum of all may be nothing, or less.
    gains = sum(max(t.total or 0.0, 0.0) for t in tallies)
    rows: list[tuple[TableCell, ...]] = []
    for t in sorted(tallies, key=lambda t: -(t.total or 0.0))[:top]:
        total = t.total or 0.0
        if total <= 0:
            break
        share = total / gains
        rows.append(
            (
                TableCell(t.text or "(no message)", code=True),
                TableCell(format_value(total), total),
                TableCell(f"{100 * share:.1f} %", share),
                TableCell(f"{t.count:,}", float(t.count)),
                TableCell(f"{t.episodes:,}", float(t.episodes)),
                TableCell(f"{t.reward or 0.0:.2f}", t.reward or 0.0),
            )
        )
    return rows


MESSAGE_AXES = ("evaluation of the reward (epoch)", "reward (normalised)")


def message_lines(data: RunData) -> list[Series]:
    """Returns the rewards of the most and the least liked messages over the reward's training."""
    return [Series(name, curve.x, curve.y) for name, curve in data.message_curves.items()]


def messages_section(data: RunData, top: int = 25) -> str:
    """The messages that the reward likes most and least, all of them to search, and what paid in play."""
    parts = []
    if data.reward_reads:
        parts.append(
            f"<p>This reward reads {html.escape(', '.join(data.reward_reads))}: what it pays depends on more than the message, so a message has "
            "no reward of its own. There is no list of those that it likes most and least, nor of what they pay the first time; "
            "<code>explain_reward</code> shows the mean of each over the steps of a dataset.</p>"
        )
    if data.liked:
        rows = _ranked_rows(data.liked)
        parts.append("<h3>most liked</h3>" + html.table(_RANKED, rows[:top], "liked-most"))
        parts.append(
            "<h3 class='after'>least liked</h3>" + html.table(_RANKED, rows[::-1][:top], "liked-least")
        )
        inside = html.table(_RANKED, rows, "liked-all", search=True, limit=50)
        parts.append(
            f"<details><summary>all {len(rows):,} messages of the dataset</summary><div class='inside'>{inside}</div></details>"
        )
    if data.message_curves:
        chart = charts.line_chart(message_lines(data), *MESSAGE_AXES, "rewards of messages")
        parts.append(html.grid(html.figure("reward by message over its training", chart)))
    for name, tallies in data.seen.items():
        rows = _paid_rows(tallies, top)
        heading = f"<h3 class='after'>what paid most in the evaluation: {html.escape(name)}</h3>"
        parts.append(
            heading
            + html.table(*_own(data, _PAID, rows), f"seen-{len(parts)}", empty="no message paid anything")
        )
    if not parts:
        parts = [charts.empty_chart("no reward run was given")]
    note = "Paid: 0 at or below the threshold; in an episode the n-th time that the message is seen is divided by n to the power of the count exponent."
    if data.seen:
        note += " Share: of all that was paid, without messages that cost more than they paid."
    if not data.reward_reads:
        note = (
            "Normalised: mean 0 and variance 1 over the training messages, each as often as it occurs there. "
            + note
        )
    return html.section("Messages", "messages", *parts, note=note)


_REPEATED = ("message", "seen (times)", "times per episode", "reward paid in all", "paid first time")


def _repeated_rows(tallies: Sequence[MessageTally], top: int = 10) -> list[tuple[TableCell, ...]]:
    paying = sorted((t for t in tallies if (t.total or 0.0) > 0), key=lambda t: (-t.count, t.text))[:top]
    return [
        (
            TableCell(t.text or "(no message)", code=True),
            TableCell(f"{t.count:,}", float(t.count)),
            TableCell(f"{t.count / t.episodes:,.1f}", t.count / t.episodes),
            TableCell(format_value(t.total or 0.0), t.total),
            TableCell(f"{t.reward or 0.0:.2f}", t.reward or 0.0),
        )
        for t in paying
    ]


def hacking_section(data: RunData) -> str:
    """Reward against progress, with the verdict in one line."""
    figures = [
        _episode_figure(*curve)
        for curve in episode_curves(data, (hacking.REWARD, *progress_keys(data.episodes)))
    ]
    repeated: list[str] = []
    for name, tallies in data.seen.items():
        rows = _repeated_rows(tallies)
        heading = f"<h3 class='after'>most repeated rewarded messages: {html.escape(name)}</h3>"
        empty = "no message paid anything"
        table = html.table(*_own(data, _REPEATED, rows), f"repeated-{len(repeated)}", empty=empty)
        repeated.append(heading + table)
    measured = [data.episodes, *(evaluation["measures"] for evaluation in data.evaluations.values())]
    shares = [
        f"{name}: {100 * evaluation['measures']['hallucination']['mean']['value']:.2g} %"
        for name, evaluation in data.evaluations.items()
        if "hallucination" in evaluation["measures"]
    ]
    confused = f"<p>Steps under hallucination: {html.escape(', '.join(shares))}.</p>" if shares else ""
    progress = [measure(key).title for key in progress_keys(key for of in measured for key in of)]
    shown = f" ({', '.join(progress)})" if progress else ""
    note = (
        f"A reward can be collected without playing better. This compares the intrinsic return with progress in the game{shown}; "
        "intervals decide what rises or falls: of 95 % for the reward, and for "
        "each measure of progress of 100 % - 5 % / (how many there are), since any of them could fall by chance. Evaluations "
        "are compared game by game where both played the same ones."
    )
    return html.section(
        "Reward against progress",
        "hacking",
        *(html.verdict(v.line, v.kind) for v in hacking.judge_run(data)),
        html.grid(*figures),
        confused,
        *repeated,
        note=note,
    )


def data_section(data: RunData) -> str:
    """Facts of the dataset and its labels."""
    if not data.dataset:
        return html.section("Dataset", "dataset", charts.empty_chart("no dataset was given"))
    facts = html.table(("fact", "value"), list(data.dataset.items()), "dataset-facts")
    rows = []
    for name, counts in data.labels.items():
        total = sum(counts.values()) or 1
        shares = [
            TableCell(f"{count:,} ({100 * count / total:.1f} %)", float(count)) for count in counts.values()
        ]
        rows.append((TableCell(name), *shares))
    kinds = next(iter(data.labels.values()), {})
    labels = html.table(("annotation", *kinds), rows, "labels", empty="not annotated yet")
    return html.section(
        "Dataset and labels", "dataset", facts, "<h3 class='after'>labels (pairs)</h3>", labels
    )


def provenance_section(data: RunData) -> str:
    """Configs, versions and commands."""
    rows = [(name, TableCell(command, code=True)) for name, command in data.commands]
    commands = html.table(("run", "command"), rows, "commands") if rows else ""
    parts = [commands, *(html.details(name, text) for name, text in data.provenance)]
    if not data.provenance:
        parts.append(charts.empty_chart("no run folder was given"))
    return html.section("How it was made", "provenance", *parts)
