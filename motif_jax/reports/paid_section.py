"""The section of a run's page that shows which texts its training paid for, and how that
changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motif_jax.display.charts import Plot, Series
from motif_jax.display.html import TableCell, message_cell, number_cell
from motif_jax.display.measures import format_value
from motif_jax.display.page import Section, Table
from motif_jax.rl.paid_texts import PaidRow, lately, most_paid

# Texts that have a line of their own.
_LINES = 6
# Points of a line: the rows of a long training are taken together.
_POINTS = 60
_HEADER = ("message", "share of what was paid", "paid", "steps")


def paid_section(rows: Sequence[PaidRow], warning: str = "") -> Section | None:
    """Shares of the most paid texts over the training, and a table of the last tenth; None where
    nothing was paid.
    """
    paying = [row for row in rows if row.total > 0]
    if not paying:
        return None
    recent = lately(paying)
    total = _total(recent)
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
    table = Table("paid-lately", _HEADER, cells, title, limit=10)
    note = (
        "All that the training's steps were paid, discounted by count and without the coefficient, of the first host's games. "
        "A line or row counts the twenty most paid texts of each row of the log."
    )
    if warning:
        note = f"{warning[0].upper()}{warning[1:]}. {note}"
    return Section("What the training paid for", "paid", [_shares(paying), table], note)


def _total(rows: Sequence[PaidRow]) -> float:
    return sum(row.total for row in rows)


def _shares(rows: Sequence[PaidRow]) -> Plot:
    """The share of each of the most paid texts in what was paid, over the training."""
    parts = [
        [rows[index] for index in part]
        for part in np.array_split(np.arange(len(rows)), _POINTS)
        if len(part)
    ]
    steps = np.array([part[-1].step for part in parts], np.float64)
    shares = []
    for part in parts:
        total = _total(part)
        shares.append({entry.text: entry.paid / total for entry in most_paid(part)})
    lines = []
    for entry in most_paid(rows)[:_LINES]:
        values = np.array([100 * share.get(entry.text, 0.0) for share in shares])
        lines.append(Series(entry.text or "(no message)", steps, values))
    return Plot(
        "what the training paid for",
        "environment steps",
        "share of what was paid (%)",
        lines,
        file="paid_texts",
    )
