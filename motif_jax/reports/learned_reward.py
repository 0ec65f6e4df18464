"""The section of a run's page about a reward that is learned online: its labels and values over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.metric_files import Curve
from motif_jax.display.charts import Plot, Series
from motif_jax.display.html import TableCell, message_cell, number_cell
from motif_jax.display.page import Section, Table

_STEPS = "environment steps"


class LearnedText(NamedTuple):
    """A text that was labelled or rewarded; `values` are its rewards at each of `LabelLogReport.checkpoints`.

    `met`, `labelled`: environment steps before the first batch with the text, and with its label. `earned`: the sum of its rewards
    after the count discount, before the coefficient. `decided`: whether its label is yes; None for a reward that gives numbers.
    """

    text: str
    met: int | None
    labelled: int | None
    label: str
    earned: float = 0.0
    values: tuple[float, ...] = ()
    decided: bool | None = None


@dataclass
class LabelLogReport:
    """The contents of a label log, over environment steps; the texts were rated at each of `checkpoints`."""

    kind: str
    counts: dict[str, Curve] = field(default_factory=dict)
    tokens: Curve | None = None
    texts: list[LearnedText] = field(default_factory=list)
    checkpoints: tuple[int, ...] = ()


def read(folder: str | Path, kind: str) -> LabelLogReport | None:
    """Reads the label log of an agent's run folder, without values; None without a log."""
    from motif_jax.core.verdicts import PAIR, SINGLE
    from motif_jax.oni.label_log import FILE, read_log

    path = Path(folder) / FILE
    if not path.exists():
        return None
    labels = list(read_log(path))
    form = PAIR if any(len(label.items) == 2 for label in labels) else SINGLE
    steps = np.array([label.step for label in labels], np.float64)
    counts = {
        name: Curve(steps, np.cumsum([label.label == place for label in labels]).astype(np.float64))
        for place, name in enumerate(form.verdicts)
    }
    tokens = Curve(steps, np.cumsum([label.tokens for label in labels]).astype(np.float64))
    single = {label.items[0]: label for label in labels if form is SINGLE}
    texts = [LearnedText(text, of.met, of.step, form.verdicts[of.label]) for text, of in single.items()]
    return LabelLogReport(kind, counts if labels else {}, tokens if labels else None, texts)


_HEADER = ("message", "met at step", "label known at step", "label", "paid in all", "reward now")


def _row(text: LearnedText) -> tuple[TableCell, ...]:
    steps = number_cell(text.met, ","), number_cell(text.labelled, ",")
    now = number_cell(text.values[-1] if text.values else None, "+.2f")
    return message_cell(text.text), *steps, TableCell(text.label), number_cell(text.earned, ",.1f"), now


def _changed(learned: LabelLogReport, top: int) -> list[tuple[TableCell, ...]]:
    moved = [text for text in learned.texts if len(text.values) > 1 and np.ptp(text.values) > 0]
    moved.sort(key=lambda text: (-float(np.ptp(text.values)), text.text))
    return [
        (message_cell(text.text), TableCell(text.label), *(number_cell(v, "+.2f") for v in text.values))
        for text in moved[:top]
    ]


def disagreements(learned: LabelLogReport) -> list[LearnedText]:
    """The texts whose reward at the newest checkpoint contradicts their label."""
    known = (text for text in learned.texts if text.label and text.decided is not None)
    return [text for text in known if text.decided != (text.label == "yes")]


def section(learned: LabelLogReport | None, metrics: Mapping[str, Curve], top: int = 25) -> Section | None:
    """The section; None if the reward is not learned online."""
    if learned is None:
        return None
    told = {"annotator/questions": "questions", "reward/texts_met": "texts met"}
    asked = [Series(name, metrics[key].x, metrics[key].y) for key, name in told.items() if key in metrics]
    labels = [Series(name, curve.x, curve.y) for name, curve in learned.counts.items()]
    total = np.maximum(sum(curve.y for curve in learned.counts.values()), 1)
    shares = [Series(name, curve.x, 100 * curve.y / total) for name, curve in learned.counts.items()]
    parts: list[Any] = [
        Plot("labels", _STEPS, "labels so far", labels),
        Plot("label shares", _STEPS, "share of the labels so far (%)", shares),
        Plot("questions and texts met", _STEPS, "so far", asked),
    ]
    if learned.tokens is not None and learned.tokens.y.any():
        parts.append(Plot("tokens", _STEPS, "so far", [Series("", learned.tokens.x, learned.tokens.y)]))
    texts = sorted(learned.texts, key=lambda text: -abs(text.earned))
    every = Table("learned-all", _HEADER, list(map(_row, texts)), "all messages, what paid most first")
    parts.append(every._replace(search=True, limit=top, empty="no message was labelled or paid"))
    if len(learned.checkpoints) > 1:
        columns = ("message", "label", *(f"at {step:,}" for step in learned.checkpoints))
        same, rows = "no reward changed between checkpoints", _changed(learned, top)
        parts.append(Table("learned-changed", columns, rows, "rewards that changed most", empty=same))
    if any(text.decided is not None for text in learned.texts):
        wrong, number = disagreements(learned), sum(bool(text.label) for text in learned.texts)
        title = f"where reward and annotator disagree: {len(wrong):,} of {number:,} labelled messages"
        shown = [_row(text) for text in wrong[:top]]
        parts.append(Table("learned-against", _HEADER, shown, title, empty="they agree on all"))
    note = (
        f"The reward of kind {learned.kind} was learned while the agent played; steps are environment steps of the run, before the "
        "batch that knew the label; sums of rewards are those up to the newest checkpoint."
    )
    return Section("What the reward learned", "learned", parts, note)
