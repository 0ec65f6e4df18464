"""Sections of a run's page that show its reward: its training, what it likes, its labels, and
whether it was hacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from motif_jax.core.distinct import distinct_rows
from motif_jax.core.metric_files import Curve
from motif_jax.display import html
from motif_jax.display.charts import Plot, Series
from motif_jax.display.html import TableCell, message_cell, number_cell
from motif_jax.display.measures import (
    format_interval,
    format_value,
    measure,
    progress_keys,
)
from motif_jax.display.page import Fold, Section, Table
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.play import messages
from motif_jax.play.messages import MessageTally
from motif_jax.reports import hacking
from motif_jax.reports.learned_reward import MAX_EVALUATIONS
from motif_jax.reports.run_data import LikedMessage, RunData
from motif_jax.rl.reward_keys import ThresholdedReward

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
# Messages in the page's list, the most frequent of the dataset: with more a browser becomes slow.
_MAX_MESSAGES = 5000
# Messages of each end whose reward is shown over its training.
_EXTREMES = 3


def reward_section(data: RunData) -> Section:
    """Loss and accuracy of the reward network."""
    tables = {"training": data.reward_train, "validation": data.reward_validation}
    if not any(tables.values()):
        return Section("Reward training", "reward", [html.nothing("no reward run was given")])
    plots = []
    for title, (unit, scale, columns, note) in _REWARD_CHARTS.items():
        lines = []
        for (name, table), column in zip(tables.items(), columns, strict=True):
            if column in table:
                # A row per epoch; the validation file has one more, before the first, and a column
                # that counts updates.
                first_epoch = 0.0 if "iter" in table else 1.0
                epochs = np.arange(len(table[column])) + first_epoch
                lines.append(Series(name, epochs, table[column] * scale))
        plots.append(Plot(title, "epoch", unit, lines, note=note, file=f"reward_{title}"))
    return Section("Reward training", "reward", [Fold("loss and accuracy", plots)])


def liked_messages(
    section: ThresholdedReward, dataset: PairsDataset
) -> tuple[list[LikedMessage], dict[str, Curve]]:
    """The rewards of the most frequent messages, and those of the extreme ones over the reward's
    training.
    """
    from motif_jax.motif.reward import reward_function

    dataset_messages = dataset.data["message"]
    texts, ids = distinct_rows(dataset_messages.reshape(-1, dataset_messages.shape[-1]))
    counts = np.bincount(ids.reshape(-1), minlength=len(texts))
    frequent = np.argsort(-counts, kind="stable")[:_MAX_MESSAGES]
    texts = texts[frequent]
    folder = section.dir or ""
    reward = reward_function.load(folder, section.step)
    normalised = reward(texts)
    paid = reward.intrinsic(texts, section.level)
    liked = [
        LikedMessage(messages.as_text(text), int(count), float(value), float(paid_value))
        for text, count, value, paid_value in zip(
            texts, counts[frequent], normalised, paid, strict=True
        )
    ]
    return liked, _message_curves(folder, section.step, texts, normalised)


def _message_curves(
    folder: str, last: int | None, texts: np.ndarray, normalised: np.ndarray
) -> dict[str, Curve]:
    """Message -> its reward over the evaluations of the training, of the messages with the highest
    and the lowest.

    Args:
      last: the last evaluation that counts; None: all count.
    """
    from motif_jax.motif.reward import reward_function
    from motif_jax.motif.reward.reward_model import saved_steps

    steps = [step for step in saved_steps(folder) if last is None or step <= last]
    if len(steps) > MAX_EVALUATIONS:
        spread = np.linspace(0, len(steps) - 1, MAX_EVALUATIONS).round().astype(int)
        steps = [steps[index] for index in dict.fromkeys(spread.tolist())]
    order = np.argsort(-normalised, kind="stable").tolist()
    extremes = list(dict.fromkeys([*order[:_EXTREMES], *order[-_EXTREMES:]]))
    values = [reward_function.load(folder, step)(texts[extremes]) for step in steps]
    by_step = np.array(values, np.float64)  # [evaluations, messages]
    curves = {}
    for column, row in enumerate(extremes):
        name = messages.as_text(texts[row]) or "(no message)"
        curves[name] = Curve(np.array(steps, np.float64), by_step[:, column])
    return curves


_RANKED = ("rank", "message", "reward (normalised)", "paid first time", "seen in dataset (times)")
_PAID = ("message", "reward paid in all", "share", "seen (times)", "episodes", "paid first time")


def _ranked_rows(liked: Sequence[LikedMessage]) -> list[tuple[TableCell, ...]]:
    """The cells below `_RANKED`, by descending reward."""
    rows: list[tuple[TableCell, ...]] = []
    ranked = sorted(liked, key=lambda message: -message.normalised)
    for rank, message in enumerate(ranked, start=1):
        # Adding 0 turns -0.0 into 0.0.
        paid = TableCell(f"{round(message.paid, 2) + 0.0:.2f}", message.paid)
        rows.append(
            (
                number_cell(rank, ""),
                message_cell(message.text),
                number_cell(message.normalised, "+.2f"),
                paid,
                number_cell(message.count, ","),
            )
        )
    return rows


def _paid_rows(tallies: Sequence[MessageTally]) -> list[tuple[TableCell, ...]]:
    """The cells below `_PAID` of the messages that paid something, by what they paid in all."""
    # Only positive sums: with negative rewards the sum of all may be 0 or negative.
    paying = [tally for tally in tallies if (tally.total or 0.0) > 0]
    gains = sum(tally.total or 0.0 for tally in paying)
    rows: list[tuple[TableCell, ...]] = []
    for tally in sorted(paying, key=lambda tally: -(tally.total or 0.0)):
        total = tally.total or 0.0
        rows.append(
            (
                message_cell(tally.text),
                TableCell(format_value(total), total),
                TableCell(f"{100 * total / gains:.1f} %", total / gains),
                number_cell(tally.count, ","),
                number_cell(tally.episodes, ","),
                number_cell(tally.reward or 0.0, ".2f"),
            )
        )
    return rows


def messages_section(data: RunData, top: int = 10) -> Section:
    """The messages with the highest and the lowest rewards and what paid most in play; a table of
    all to search in a fold.
    """
    parts: list[Any] = []
    if data.reward_reads:
        parts.append(
            f"<p>This reward reads {html.escape(', '.join(data.reward_reads))}: what it pays depends on more than the message, so a message has "
            "no reward of its own. There is no list of those that it likes most and least, nor of what they pay the first time; "
            "<code>explain_reward</code> shows the mean of each over the steps of a dataset.</p>"
        )
    if data.liked:
        rows = _ranked_rows(data.liked)
        parts.append(Table("liked-most", _RANKED, rows[:top], "most liked"))
        parts.append(Table("liked-least", _RANKED, rows[::-1][:top], "least liked"))
        searchable = Table("liked-all", _RANKED, rows, search=True, limit=50)
        parts.append(Fold(f"all {len(rows):,} messages of the dataset", [searchable]))
    if data.message_curves:
        lines = [Series(name, curve.x, curve.y) for name, curve in data.message_curves.items()]
        curves = Plot(
            "reward by message over its training",
            "evaluation of the reward (epoch)",
            "reward (normalised)",
            lines,
            file="reward_by_message",
        )
        parts.append(Fold("how the reward of messages changed over its training", [curves]))
    parts += _paid_in_evaluations(data, top)
    if not parts:
        parts.append(html.nothing("no reward run was given"))
    return Section("What the reward likes", "messages", parts, _messages_note(data))


def _paid_in_evaluations(data: RunData, top: int) -> list[Any]:
    """A table for each evaluation; all but the first in a fold."""
    # A reward that reads more than the message gives no number to a message alone.
    columns = len(_PAID) - 1 if data.reward_reads else len(_PAID)
    parts: list[Any] = []
    for number, (name, tallies) in enumerate(data.message_tallies.items()):
        title = f"what paid most in the evaluation: {name}"
        rows = [row[:columns] for row in _paid_rows(tallies)]
        table = Table(
            f"paid-{number}",
            _PAID[:columns],
            rows,
            title,
            limit=top,
            empty="no message paid anything",
        )
        parts.append(Fold(title, [table._replace(title="")]) if number else table)
    return parts


def _messages_note(data: RunData) -> str:
    note = "Paid: 0 at or below the threshold; in an episode the n-th time that the message is seen is divided by n to the power of the count exponent."
    if data.message_tallies:
        note += " Share: of all that was paid, without messages that cost more than they paid."
    if not data.reward_reads:
        note = f"Normalised: mean 0 and variance 1 over the training messages, each as often as it occurs there. {note}"
    return note


def hacking_section(data: RunData) -> Section:
    """Reward against progress, with the verdicts."""
    verdicts = hacking.judge_run(data)
    parts: list[Any] = [html.verdict(verdict.line, verdict.kind) for verdict in verdicts]
    rows = []
    for verdict in verdicts:
        for change in verdict.changes:
            rows.append(
                (
                    " to ".join(verdict.when),
                    measure(change.key).title,
                    format_value(change.before),
                    format_value(change.after),
                    format_interval(change),
                )
            )
    if rows:
        header = ("between", "measure", "before", "after", "change between")
        note = "Means; interval of the change: 95 % for the intrinsic return, together 95 % for the measures of progress."
        table = Table("progress", header, rows, "changes of the means", note, in_files=True)
        parts.append(Fold("the changes in numbers", [table]))

    keys = list(data.episodes)
    for evaluation in data.evaluations.values():
        keys += evaluation["measures"]
    progress = [measure(key).title for key in progress_keys(keys, data.progress)]
    measured = f" ({', '.join(progress)})" if progress else ""
    note = (
        f"A reward can be collected without playing better. This compares the intrinsic return with progress in the game{measured}; "
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
        shares = [
            TableCell(f"{count:,} ({100 * count / total:.1f} %)", float(count))
            for count in counts.values()
        ]
        rows.append((name, *shares))
    header = ("annotation", *next(iter(data.labels.values()), {}))
    facts = Table("dataset-facts", ("fact", "value"), list(data.dataset.items()))
    labels = Table(
        "labels", header, rows, "labels (pairs)", in_files=True, empty="not annotated yet"
    )
    return Section(
        "Dataset and labels", "dataset", [Fold("origin, sizes and labels", [facts, labels])]
    )
