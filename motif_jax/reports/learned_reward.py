"""The section of a run's page that shows what a reward learned while the agent played, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.reports.charts import Plot, Series
from motif_jax.reports.html import TableCell
from motif_jax.reports.page import Fold, Section, Table
from motif_jax.support.curves import Curve

_PARTS, _STEPS = 10, "environment steps"


@dataclass(frozen=True)
class LearnedText:
    """A text that was labelled, or paid.

    Attributes:
      text: the message.
      met: environment steps before the batch that showed it first; None where the log does not say.
      labelled: environment steps when its label was taken up; None for a text without one.
      label: the verdict's name, '' without one.
      paid: environment steps when it was paid first; None for a text that never was.
      values: its reward at each of `LabelLogReport.checkpoints`.
      decided: whether the reward's own verdict at the newest checkpoint is yes; None where it says numbers.
    """

    text: str
    met: int | None
    labelled: int | None
    label: str
    paid: int | None
    values: tuple[float, ...] = ()
    decided: bool | None = None


@dataclass(frozen=True)
class Tenth:
    """Payments in a tenth of the run.

    Attributes:
      begin, end: environment steps.
      texts: those that earned most in it, with their sums.
      total: of all texts.
    """

    begin: int
    end: int
    texts: list[tuple[str, float]]
    total: float


@dataclass
class LabelLogReport:
    """What a label log records.

    Attributes:
      kind: of the reward.
      counts: labels so far, by verdict, over environment steps.
      tokens: so far, over environment steps.
      texts: all that were labelled or paid, in that order.
      checkpoints: environment steps of the checkpoints that the texts were valued at.
      tenths: what each tenth of the run was paid for, as far as it has come.
    """

    kind: str
    counts: dict[str, Curve] = field(default_factory=dict)
    tokens: Curve | None = None
    texts: list[LearnedText] = field(default_factory=list)
    checkpoints: tuple[int, ...] = ()
    tenths: list[Tenth] = field(default_factory=list)


def read(folder: str | Path, kind: str) -> LabelLogReport | None:
    """The log in an agent's run folder, without values; None without one."""
    from motif_jax.datasets.verdicts import PAIR, SINGLE
    from motif_jax.rewards.label_log import FILE, Earnings, Label, Payment, read_log

    path = Path(folder) / FILE
    if not path.exists():
        return None
    records = list(read_log(path))
    labels = [record for record in records if isinstance(record, Label)]
    form = PAIR if any(len(label.items) == 2 for label in labels) else SINGLE
    steps = np.array([label.step for label in labels], np.float64)
    counts = {
        name: Curve(steps, np.cumsum([label.label == place for label in labels]).astype(np.float64))
        for place, name in enumerate(form.verdicts)
    }
    tokens = Curve(steps, np.cumsum([label.tokens for label in labels]).astype(np.float64))
    paid = {text: record.step for record in records if isinstance(record, Payment) for text in record.texts}
    single = {label.items[0]: label for label in labels if form is SINGLE}
    texts = [
        LearnedText(text, label.met, label.step, form.verdicts[label.label], paid.get(text))
        for text, label in single.items()
    ]
    texts += [LearnedText(text, None, None, "", step) for text, step in paid.items() if text not in single]
    tenths = _tenths(
        [(record.step, record.texts, record.total) for record in records if isinstance(record, Earnings)]
    )
    return LabelLogReport(kind, counts if labels else {}, tokens if labels else None, texts, tenths=tenths)


def _tenths(sums: Sequence[tuple[int, Mapping[str, float], float]]) -> list[Tenth]:
    """Differences between cumulative sums; a text that was not among the best before counts from there."""
    tenths: list[Tenth] = []
    known: dict[str, float] = {}
    begin, total = 0, 0.0
    for end, texts, now in sums:
        grown = {text: value - known.get(text, 0.0) for text, value in texts.items()}
        best = sorted(
            ((t, v) for t, v in grown.items() if abs(v) > 1e-6), key=lambda one: (-abs(one[1]), one[0])
        )
        tenths.append(Tenth(begin, end, best, now - total))
        begin, known, total = end, {**known, **texts}, now
    return tenths


def _cell(step: int | None) -> TableCell:
    return TableCell("") if step is None else TableCell(f"{step:,}", float(step))


def _row(text: LearnedText) -> tuple[TableCell, ...]:
    value = text.values[-1] if text.values else None
    shown = TableCell("") if value is None else TableCell(f"{value:+.2f}", value)
    return (
        TableCell(text.text or "(no message)", code=True),
        _cell(text.met),
        _cell(text.labelled),
        TableCell(text.label),
        _cell(text.paid),
        shown,
    )


_HEADER = ("message", "met at step", "label known at step", "label", "first paid at step", "reward now")


def _changed(learned: LabelLogReport, top: int) -> list[tuple[TableCell, ...]]:
    """The texts whose reward differs most between two checkpoints."""
    moved = [text for text in learned.texts if len(text.values) > 1 and np.ptp(text.values) > 0]
    moved.sort(key=lambda text: (-float(np.ptp(text.values)), text.text))
    return [
        (
            TableCell(text.text or "(no message)", code=True),
            TableCell(text.label),
            *(TableCell(f"{value:+.2f}", value) for value in text.values),
        )
        for text in moved[:top]
    ]


def _began(learned: LabelLogReport, top: int) -> list[tuple[TableCell, ...]]:
    """Texts that began to pay in each tenth of the run."""
    paid = [text for text in learned.texts if text.paid is not None]
    if not paid:
        return []
    last = max((text.paid or 0 for text in paid), default=0) + 1
    rows: list[tuple[TableCell, ...]] = []
    for part in range(_PARTS):
        low, high = last * part / _PARTS, last * (part + 1) / _PARTS
        here = [text.text or "(no message)" for text in paid if low <= (text.paid or 0) < high]
        more = [f"… {len(here) - top:,} more"] if len(here) > top else []
        rows.append((TableCell(f"{low:,.0f} to {high:,.0f}", low), TableCell(f"{len(here):,}", float(len(here))),
                     TableCell("\n".join([*here[:top], *more]), code=True)))  # fmt: skip
    return rows


def _earned(learned: LabelLogReport, top: int) -> list[tuple[TableCell, ...]]:
    """Texts that paid most in each tenth of the run, with their shares."""
    rows: list[tuple[TableCell, ...]] = []
    for tenth in learned.tenths if any(tenth.texts for tenth in learned.tenths) else ():
        said = [
            f"{_share(value, tenth.total)}  {text or '(no message)'}" for text, value in tenth.texts[:top]
        ]
        rows.append((TableCell(f"{tenth.begin:,} to {tenth.end:,}", float(tenth.begin)),
                     TableCell(f"{tenth.total:,.1f}", tenth.total), TableCell("\n".join(said), code=True)))  # fmt: skip
    return rows


def _share(value: float, total: float) -> str:
    return f"{100 * value / total:3.0f} %" if total > 0 else f"{value:+8.1f}"


def disagreements(learned: LabelLogReport) -> list[LearnedText]:
    """The labelled texts of which the reward at the newest checkpoint says something else than the annotator."""
    return [
        text
        for text in learned.texts
        if text.label and text.decided is not None and text.decided != (text.label == "yes")
    ]


def section(learned: LabelLogReport | None, metrics: Mapping[str, Curve], top: int = 25) -> Section | None:
    """The section; None for an agent whose reward is not learned online."""
    if learned is None:
        return None
    asked = [
        Series(name, metrics[key].x, metrics[key].y)
        for key, name in (("annotator/questions", "questions"), ("reward/texts_met", "texts met"))
        if key in metrics
    ]
    labels = [Series(name, curve.x, curve.y) for name, curve in learned.counts.items()]
    parts: list[Any] = [
        Plot("labels", _STEPS, "labels so far", labels),
        Plot("label shares", _STEPS, "share of the labels so far (%)", _shares(learned.counts)),
        Plot("questions and texts met", _STEPS, "so far", asked),
    ]
    if learned.tokens is not None and learned.tokens.y.any():
        parts.append(Plot("tokens", _STEPS, "so far", [Series("", learned.tokens.x, learned.tokens.y)]))
    unpaid, header = "nothing was paid", (_STEPS, "messages", "the first of them")
    parts.append(Table("learned-began", header, _began(learned, 5), "what began to pay", empty=unpaid))
    if learned.tenths:
        header, title = (
            (_STEPS, "paid in all", "share, and what paid most"),
            "what paid most in each tenth of the run",
        )
        parts.append(Table("learned-earned", header, _earned(learned, 5), title, empty=unpaid))
    if len(learned.checkpoints) > 1:
        columns = ("message", "label", *(f"at {step:,}" for step in learned.checkpoints))
        same, rows = "no reward changed between checkpoints", _changed(learned, top)
        parts.append(Table("learned-changed", columns, rows, "rewards that changed most", empty=same))
    if any(text.decided is not None for text in learned.texts):
        wrong, number = disagreements(learned), sum(bool(text.label) for text in learned.texts)
        title = f"where reward and annotator disagree: {len(wrong):,} of {number:,} labelled messages"
        shown = [_row(text) for text in wrong[:top]]
        parts.append(Table("learned-against", _HEADER, shown, title, empty="they agree on all"))
    unlabelled, every = "no message was labelled or paid", [_row(text) for text in learned.texts]
    table = Table("learned-all", _HEADER, every, search=True, limit=50, empty=unlabelled)
    parts.append(Fold(f"all {len(every):,} messages", [table]))
    note = (
        f"The reward of kind {learned.kind} was learned while the agent played; steps are environment steps of the run, before the "
        "batch that knew the label or paid the message first."
    )
    return Section("What the reward learned", "learned", parts, note)


def _shares(counts: Mapping[str, Curve]) -> list[Series]:
    total: Any = sum(curve.y for curve in counts.values())
    return [Series(name, c.x, 100 * c.y / np.maximum(total, 1)) for name, c in counts.items()]
