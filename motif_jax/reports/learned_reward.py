"""The section of a run's page about a reward that is learned online: its labels and values over
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import run_folder
from motif_jax.core.metric_files import Curve
from motif_jax.display.charts import Plot, Series
from motif_jax.display.html import TableCell, message_cell, number_cell
from motif_jax.display.page import Section, Table

_STEPS = "environment steps"
# Evaluations or checkpoints of a reward that the page shows.
MAX_EVALUATIONS = 12


class LearnedText(NamedTuple):
    """A text that was labelled or rewarded; `values` are its rewards at each of
    `LabelLogReport.checkpoints`.

    `first_step`, `label_step`: environment steps before the first batch with the text, and with its
    label. `earned`: the sum of its rewards after the count discount, before the coefficient.
    `decided`: whether its label is yes; None for a reward that gives numbers.
    """

    text: str
    first_step: int | None
    label_step: int | None
    label: str
    earned: float = 0.0
    values: tuple[float, ...] = ()
    decided: bool | None = None


@dataclass
class LabelLogReport:
    """The contents of a label log, over environment steps; the texts were rated at each of
    `checkpoints`.
    """

    kind: str
    counts: dict[str, Curve] = field(default_factory=dict)
    tokens: Curve | None = None
    texts: list[LearnedText] = field(default_factory=list)
    checkpoints: tuple[int, ...] = ()


def read(folder: Path) -> LabelLogReport | None:
    """The labels that an online reward learned, valued at the run's checkpoints; None for any other
    reward.
    """
    from motif_jax.motif.reward import reward_function
    from motif_jax.motif.reward.reward_model import saved_steps
    from motif_jax.oni import online_model

    config = run_folder.read_config(folder)
    kind = config.get("reward", {}).get("kind")
    report = read_log(folder, kind) if kind in online_model.KINDS else None
    if report is None:
        return None
    steps = saved_steps(folder)
    if not steps:
        return report

    rewards = [reward_function.load(folder, step) for step in steps[-MAX_EVALUATIONS:]]
    newest: Any = rewards[-1]
    # The log has no texts that were paid without a label of their own.
    labelled = {text.text for text in report.texts}
    for text, earned in newest.trained.earned.items():
        if earned and text not in labelled:
            report.texts.append(LearnedText(text, None, None, ""))
    if not report.texts:
        return report

    names = [text.text for text in report.texts]
    # [texts, checkpoints].
    values = np.stack([reward.intrinsic(names) for reward in rewards], axis=1)
    report.checkpoints = tuple(reward.trained.step for reward in rewards)
    decided: list[bool | None] = [None] * len(names)
    if kind == "classification" and newest.trained.taken:
        threshold = config["reward"]["classifier"]["threshold"]
        decided = [bool(is_yes) for is_yes in newest.raw(names) > threshold]
    report.texts = [
        text._replace(
            values=tuple(values_of_text),
            earned=newest.trained.earned.get(text.text, 0.0),
            decided=is_yes,
        )
        for text, values_of_text, is_yes in zip(report.texts, values.tolist(), decided, strict=True)
    ]
    return report


def read_log(folder: str | Path, kind: str) -> LabelLogReport | None:
    """Reads the label log of an agent's run folder, without values; None without a log."""
    from motif_jax.core.verdicts import PAIR, SINGLE
    from motif_jax.oni import label_log

    path = Path(folder) / label_log.FILE
    if not path.exists():
        return None
    labels = list(label_log.read_log(path))
    if not labels:
        return LabelLogReport(kind)
    form = PAIR if any(len(label.items) == 2 for label in labels) else SINGLE
    steps = np.array([label.step for label in labels], np.float64)
    counts = {}
    for number, name in enumerate(form.verdicts):
        so_far = np.cumsum([label.label == number for label in labels])
        counts[name] = Curve(steps, so_far.astype(np.float64))
    tokens = Curve(steps, np.cumsum([label.tokens for label in labels]).astype(np.float64))
    # A label of a pair is none of a text.
    label_of_text = {label.items[0]: label for label in labels} if form is SINGLE else {}
    texts = [
        LearnedText(text, label.first_step, label.step, form.verdicts[label.label])
        for text, label in label_of_text.items()
    ]
    return LabelLogReport(kind, counts, tokens, texts)


_HEADER = ("message", "met at step", "label known at step", "label", "paid in all", "reward now")


def _row(text: LearnedText) -> tuple[TableCell, ...]:
    """The cells below `_HEADER`."""
    newest = text.values[-1] if text.values else None
    return (
        message_cell(text.text),
        number_cell(text.first_step, ","),
        number_cell(text.label_step, ","),
        TableCell(text.label),
        number_cell(text.earned, ",.1f"),
        number_cell(newest, "+.2f"),
    )


def _changed(learned: LabelLogReport, top: int) -> list[tuple[TableCell, ...]]:
    """The `top` texts whose reward changed most between checkpoints, with their reward at each."""
    changed = [text for text in learned.texts if len(text.values) > 1 and np.ptp(text.values) > 0]
    changed.sort(key=lambda text: (-float(np.ptp(text.values)), text.text))
    rows = []
    for text in changed[:top]:
        values = [number_cell(value, "+.2f") for value in text.values]
        rows.append((message_cell(text.text), TableCell(text.label), *values))
    return rows


def disagreements(learned: LabelLogReport) -> list[LearnedText]:
    """The texts whose reward at the newest checkpoint contradicts their label."""
    decided = [text for text in learned.texts if text.label and text.decided is not None]
    return [text for text in decided if text.decided != (text.label == "yes")]


def section(
    learned: LabelLogReport | None, metrics: Mapping[str, Curve], top: int = 25
) -> Section | None:
    """The section; None if the reward is not learned online."""
    if learned is None:
        return None
    parts: list[Any] = _plots(learned, metrics)
    texts = sorted(learned.texts, key=lambda text: -abs(text.earned))
    parts.append(
        Table(
            "learned-all",
            _HEADER,
            [_row(text) for text in texts],
            "all messages, what paid most first",
            search=True,
            limit=top,
            empty="no message was labelled or paid",
        )
    )
    if len(learned.checkpoints) > 1:
        columns = ("message", "label", *(f"at {step:,}" for step in learned.checkpoints))
        unchanged = "no reward changed between checkpoints"
        rows = _changed(learned, top)
        parts.append(
            Table("learned-changed", columns, rows, "rewards that changed most", empty=unchanged)
        )
    if any(text.decided is not None for text in learned.texts):
        contradicting = disagreements(learned)
        labelled = sum(1 for text in learned.texts if text.label)
        title = f"where reward and annotator disagree: {len(contradicting):,} of {labelled:,} labelled messages"
        rows = [_row(text) for text in contradicting[:top]]
        parts.append(Table("learned-against", _HEADER, rows, title, empty="they agree on all"))
    note = (
        f"The reward of kind {learned.kind} was learned while the agent played; steps are environment steps of the run, before the "
        "batch that knew the label; sums of rewards are those up to the newest checkpoint."
    )
    return Section("What the reward learned", "learned", parts, note)


def _plots(learned: LabelLogReport, metrics: Mapping[str, Curve]) -> list[Plot]:
    """Labels, their shares, questions and tokens over environment steps."""
    labels = [Series(name, curve.x, curve.y) for name, curve in learned.counts.items()]
    total = np.maximum(sum(curve.y for curve in learned.counts.values()), 1)
    shares = [
        Series(name, curve.x, 100 * curve.y / total) for name, curve in learned.counts.items()
    ]
    legends = {"annotator/questions": "questions", "reward/texts_met": "texts met"}
    questions = [
        Series(legend, metrics[key].x, metrics[key].y)
        for key, legend in legends.items()
        if key in metrics
    ]
    plots = [
        Plot("labels", _STEPS, "labels so far", labels),
        Plot("label shares", _STEPS, "share of the labels so far (%)", shares),
        Plot("questions and texts met", _STEPS, "so far", questions),
    ]
    if learned.tokens is not None and learned.tokens.y.any():
        tokens = Series("", learned.tokens.x, learned.tokens.y)
        plots.append(Plot("tokens", _STEPS, "so far", [tokens]))
    return plots
