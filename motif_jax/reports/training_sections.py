"""Sections of a run's page that show training, messages, data and origin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.core.metric_files import Curve
from motif_jax.display import html
from motif_jax.display.charts import Plot, Series
from motif_jax.display.html import TableCell, message_cell, number_cell
from motif_jax.display.measures import (
    format_interval,
    format_value,
    in_order,
    is_rate,
    measure,
    progress_keys,
    with_unit,
)
from motif_jax.display.page import Fold, Section, Table
from motif_jax.play.messages import MessageTally
from motif_jax.reports import hacking
from motif_jax.reports.run_data import LikedMessage, RunData
from motif_jax.reports.smoothing import smooth

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
        {"policy/ratio_mean": "mean", "policy/ratio_min": "smallest", "policy/ratio_max": "largest"},
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
# Prefixes of metrics of an agent that learns from dialogues, a chart for each metric; all but the first are PPO's.
_SHOWN = ("games/", "episode/", "reference/", "policy/", "loss/", "value/")
# Charts of a training that are not folded.
CURVES = 4
_BANDS = (
    "Each point of a curve is the mean over a stretch of steps; of episodes at least 10 are in it, and the band is the 95 % interval of "
    "their mean."
)
_STEPS, _UPDATES = "environment steps", "step of the optimiser"


def metric_plots(curves: Mapping[str, Curve], groups: Groups, x_label: str, file: str = "") -> list[Plot]:
    """A chart per group that has metrics which change; its file's name begins with `file`, '' for no file."""
    plots = []
    for title, (unit, members) in groups.items():
        shown = {name: smooth(curves[name], 120, band=False) for name in members if name in curves}
        lines = [curve.series(members[name] if len(shown) > 1 else "") for name, curve in shown.items()]
        if note := next((smoothed.caption("values") for smoothed in shown.values() if len(smoothed.x)), ""):
            name = file and f"{file}_{title.replace(' ', '_')}"
            plots.append(Plot(title, x_label, unit or title, lines, file=name, method=note))
    return [plot for plot in plots if not plot.constant]


def episode_plots(data: RunData, keys: Iterable[str], file: str = "") -> list[Plot]:
    """A chart for each of `keys` that changes over the training's episodes."""
    plots = []
    for key in keys:
        if key in data.episodes and np.isfinite(data.episodes[key].y).any():
            values = data.episodes[key].y
            rate = is_rate(key, values[np.isfinite(values)])
            what, curve = measure(key), smooth(data.episodes[key], rate=rate)
            name = file and f"{file}_{key}"
            lines, method = [curve.series()], curve.caption("episodes")
            plots.append(
                Plot(what.title, _STEPS, with_unit(what), lines, note=what.meaning, file=name, method=method)
            )
    return [plot for plot in plots if not plot.constant]


def constants(episodes: Mapping[str, Curve]) -> str:
    """The measures that were the same in every episode, in words; '' without any."""
    alike = []
    for key in in_order(episodes):
        values = episodes[key].y[np.isfinite(episodes[key].y)]
        if len(values) and np.ptp(values) == 0:
            alike.append(f"{measure(key).title} {format_value(float(values[0]))}")
    return f"The same in every episode: {', '.join(alike)}." if alike else ""


def training_section(data: RunData) -> Section:
    """The agent's training: `CURVES` charts of reward and progress, all others in a fold."""
    if not data.metrics and not data.episodes:
        return Section("Agent training", "training", [html.nothing("no agent run was given")])
    shown = {name for _, members in METRIC_GROUPS.values() for name in members}
    rest = [name for name in sorted(data.metrics) if name not in shown]
    others = metric_plots(data.metrics, {name: ("", {name: ""}) for name in rest}, _STEPS)
    first = (hacking.REWARD, *progress_keys(data.episodes), "return")
    curves = episode_plots(data, dict.fromkeys((*first, *in_order(data.episodes))), "training")
    curves += metric_plots(data.metrics, METRIC_GROUPS, _STEPS, "metric")
    parts: list[Any] = curves[:CURVES]
    below = [*curves[CURVES:], *others]
    if below:
        parts.append(Fold(f"all other curves ({len(below)})", below))
    note = f"{_BANDS} {constants(data.episodes)}".strip()
    parts.append(f'<p class="explain">{html.escape(note)}</p>')
    return Section("Agent training", "training", parts)


def language_section(curves: Mapping[str, Curve]) -> Section | None:
    """The training of a language model; None without curves."""
    plots = metric_plots(curves, LANGUAGE_GROUPS, _UPDATES, "language")
    return Section("Language model training", "language", plots) if curves else None


def dialogues_section(curves: Mapping[str, Curve]) -> Section | None:
    """The training of an agent that learns from dialogues; None without curves."""
    names = [name.removeprefix(side) for side in reversed(_SIDES) for name in curves if name.startswith(side)]
    ranges = [name.removesuffix("_mean") for name in names if name.endswith("_mean")]
    parts = ("max", "mean", "min")
    of_ranges = {f"{name}_{part}" for name in ranges for part in parts}
    groups = {name: _both(name) for name in names if name not in of_ranges}
    groups |= {f"range of {name}": {f"train/{name}_{part}": part for part in parts} for name in ranges}
    groups |= {name.replace("/", ", "): {name: ""} for name in curves if name.startswith(_SHOWN)}
    titled = {name.replace("_", " "): ("", members) for name, members in groups.items()}
    plots = metric_plots(curves, titled, _UPDATES)
    return Section("Learning from dialogues", "text", plots) if curves else None


# Title -> (unit, factor, columns of the published CSV files of training and validation, note).
_REWARD_CHARTS = {
    "loss": (
        "cross-entropy (nats per pair)",
        1.0,
        ("total_train_loss", "total_val_loss"),
        "pairs of observations; a network that knows nothing has 0.693",
    ),
    "accuracy": (
        "correct (%)",
        100.0,
        ("total_train_acc", "validation_accs"),
        "share of pairs ordered as the annotator did, ties left out; chance is 50 %",
    ),
}


def reward_section(data: RunData) -> Section:
    """Loss and accuracy of the reward network."""
    tables = {"training": data.reward_train, "validation": data.reward_validation}
    if not any(tables.values()):
        return Section("Reward training", "reward", [html.nothing("no reward run was given")])
    plots = []
    for title, (unit, scale, columns, note) in _REWARD_CHARTS.items():
        # A row per epoch; the validation file has one more, before the first, and a column that counts updates.
        lines = [
            Series(name, np.arange(len(of[column])) + float("iter" not in of), of[column] * scale)
            for (name, of), column in zip(tables.items(), columns, strict=True)
            if column in of
        ]
        plots.append(Plot(title, "epoch", unit, lines, note=note, file=f"reward_{title}"))
    return Section("Reward training", "reward", [Fold("loss and accuracy", plots)])


_RANKED = ("rank", "message", "reward (normalised)", "paid first time", "seen in dataset (times)")
_PAID = ("message", "reward paid in all", "share", "seen (times)", "episodes", "paid first time")


def _ranked_rows(liked: Sequence[LikedMessage]) -> list[tuple[TableCell, ...]]:
    rows: list[tuple[TableCell, ...]] = []
    for place, m in enumerate(sorted(liked, key=lambda m: -m.normalised), start=1):
        paid = TableCell(f"{round(m.paid, 2) + 0.0:.2f}", m.paid)
        numbers = number_cell(m.normalised, "+.2f"), paid, number_cell(m.count, ",")
        rows.append((number_cell(place, ""), message_cell(m.text), *numbers))
    return rows


def _paid_rows(tallies: Sequence[MessageTally]) -> list[tuple[TableCell, ...]]:
    # Only positive sums: with negative rewards the sum of all may be 0 or negative.
    gains = sum(max(t.total or 0.0, 0.0) for t in tallies)
    rows: list[tuple[TableCell, ...]] = []
    for t in sorted(tallies, key=lambda t: -(t.total or 0.0)):
        if (total := t.total or 0.0) <= 0:
            break
        paid = TableCell(format_value(total), total), TableCell(f"{100 * total / gains:.1f} %", total / gains)
        seen = number_cell(t.count, ","), number_cell(t.episodes, ",")
        rows.append((message_cell(t.text), *paid, *seen, number_cell(t.reward or 0.0, ".2f")))
    return rows


def messages_section(data: RunData, top: int = 10) -> Section:
    """The messages with the highest and the lowest rewards and what paid most in play; a table of all to search in a fold."""
    parts: list[Any] = []
    if data.reward_reads:
        parts.append(
            f"<p>This reward reads {html.escape(', '.join(data.reward_reads))}: what it pays depends on more than the message, so a message has "
            "no reward of its own. There is no list of those that it likes most and least, nor of what they pay the first time; "
            "<code>explain_reward</code> shows the mean of each over the steps of a dataset.</p>"
        )
    if data.liked:
        rows = _ranked_rows(data.liked)
        parts += [
            Table("liked-most", _RANKED, rows[:top], "most liked"),
            Table("liked-least", _RANKED, rows[::-1][:top], "least liked"),
        ]
        every = Table("liked-all", _RANKED, rows, search=True, limit=50)
        parts.append(Fold(f"all {len(rows):,} messages of the dataset", [every]))
    if data.message_curves:
        lines = [Series(name, curve.x, curve.y) for name, curve in data.message_curves.items()]
        axes = ("evaluation of the reward (epoch)", "reward (normalised)")
        curves = Plot("reward by message over its training", *axes, lines, file="reward_by_message")
        parts.append(Fold("how the reward of messages changed over its training", [curves]))
    for number, (name, tallies) in enumerate(data.seen.items()):
        title = f"what paid most in the evaluation: {name}"
        # A reward that reads more than the message gives no number to a message alone.
        columns = len(_PAID) - bool(data.reward_reads)
        paid, empty = [row[:columns] for row in _paid_rows(tallies)], "no message paid anything"
        table = Table(f"paid-{number}", _PAID[:columns], paid, title, limit=top, empty=empty)
        parts.append(Fold(title, [table._replace(title="")]) if number else table)
    note = "Paid: 0 at or below the threshold; in an episode the n-th time that the message is seen is divided by n to the power of the count exponent."
    if data.seen:
        note += " Share: of all that was paid, without messages that cost more than they paid."
    if not data.reward_reads:
        note = f"Normalised: mean 0 and variance 1 over the training messages, each as often as it occurs there. {note}"
    return Section(
        "What the reward likes", "messages", parts or [html.nothing("no reward run was given")], note
    )


def hacking_section(data: RunData) -> Section:
    """Reward against progress, with the verdicts."""
    verdicts = hacking.judge_run(data)
    parts: list[Any] = [html.verdict(verdict.line, verdict.kind) for verdict in verdicts]
    changes = []
    for verdict in verdicts:
        for c in verdict.changes:
            moved = format_value(c.before), format_value(c.after), format_interval(c)
            changes.append((" to ".join(verdict.when), measure(c.key).title, *moved))
    if changes:
        header = ("between", "measure", "before", "after", "change between")
        note = "Means; interval of the change: 95 % for the intrinsic return, together 95 % for the measures of progress."
        table = Table("progress", header, changes, "changes of the means", note, in_files=True)
        parts.append(Fold("the changes in numbers", [table]))
    measured = [data.episodes, *(evaluation["measures"] for evaluation in data.evaluations.values())]
    progress = [measure(key).title for key in progress_keys(key for of in measured for key in of)]
    shown = f" ({', '.join(progress)})" if progress else ""
    note = (
        f"A reward can be collected without playing better. This compares the intrinsic return with progress in the game{shown}; "
        "intervals decide what rises or falls: of 95 % for the reward, and for "
        "each measure of progress of 100 % - 5 % / (how many there are), since any of them could fall by chance. Evaluations "
        "are compared game by game where both played the same ones."
    )
    parts.append(Fold("how this is judged", [f"<p>{html.escape(note)}</p>"]))
    return Section("Reward against progress", "hacking", parts)


def data_section(data: RunData) -> Section:
    """Facts of the dataset and its labels."""
    if not data.dataset:
        return Section("Dataset", "dataset", [html.nothing("no dataset was given")])
    rows = []
    for name, counts in data.labels.items():
        total = sum(counts.values()) or 1
        shares = (TableCell(f"{of:,} ({100 * of / total:.1f} %)", float(of)) for of in counts.values())
        rows.append((name, *shares))
    header = ("annotation", *next(iter(data.labels.values()), {}))
    facts = Table("dataset-facts", ("fact", "value"), list(data.dataset.items()))
    labels = Table("labels", header, rows, "labels (pairs)", in_files=True, empty="not annotated yet")
    return Section("Dataset and labels", "dataset", [Fold("origin, sizes and labels", [facts, labels])])


def provenance_section(data: RunData) -> Section:
    """Configs, versions and commands."""
    rows = [(name, TableCell(command, code=True)) for name, command in data.commands]
    commands = [Table("commands", ("run", "command"), rows)] if rows else []
    texts = [html.details(*text) for text in data.provenance] or [html.nothing("no run folder was given")]
    folded = [Fold("commands, settings and versions", [*commands, *texts])]
    return Section("How it was made", "provenance", folded)
