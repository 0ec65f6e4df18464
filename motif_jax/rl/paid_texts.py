"""What a training pays for which texts: summed between two rows of its log, and written as lines of
paid_texts.jsonl.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.core import text_bytes
from motif_jax.core.files import append_lines, json_line, naming, read_json_lines
from motif_jax.core.metrics import MetricTable

FILE_NAME = "paid_texts.jsonl"
# Texts of a line: those that were paid most.
TOP = 20
# The share of a training that is "lately".
_LATELY = 0.1
# The shares of the steps, and of what they were paid, from which on an agent is said to stay with
# one text.
_LEAST_STEPS = 0.4
_LEAST_PAID = 0.5


class PaidText(NamedTuple):
    """A text, how many steps had it, and what these were paid, discounted by count and without
    coefficient.
    """

    text: str
    steps: int
    paid: float


class PaidRow(NamedTuple):
    """What was paid since the row before: in all, without texts that cost something, and for the
    texts that were paid most.
    """

    step: int
    total: float
    texts: list[PaidText]


class PaidTexts:
    """Sums what texts are paid. The batcher's thread adds, the main thread takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[bytes, tuple[int, float]] = {}  # text -> steps, paid

    def add(self, texts: np.ndarray, counts: np.ndarray, paid: np.ndarray) -> None:
        """Adds a batch: distinct texts uint8 [N, L], int [N] steps that have them, float [N] what
        these are paid in all.
        """
        is_paid = paid != 0
        keys = [row.tobytes() for row in texts[is_paid]]
        amounts = zip(counts[is_paid].tolist(), paid[is_paid].tolist(), strict=True)
        self.add_sums(dict(zip(keys, amounts, strict=True)))

    def add_sums(self, sums: Mapping[bytes, tuple[int, float]]) -> None:
        """Adds a batch: text -> the steps that have it, and what these are paid in all."""
        with self._lock:
            for key, (steps, amount) in sums.items():
                steps_before, paid_before = self._sums.get(key, (0, 0.0))
                self._sums[key] = (steps_before + steps, paid_before + amount)

    def take(self, step: int) -> PaidRow:
        """The sums since the last call, as the row of environment step `step`."""
        with self._lock:
            # New sums at once, so that the batcher does not wait for the sorting below.
            sums = self._sums
            self._sums = {}
        positive = [(key, steps, paid) for key, (steps, paid) in sums.items() if paid > 0]
        positive.sort(key=lambda entry: (-entry[2], entry[0]))
        most_paid = [
            PaidText(text_bytes.decode(key.rstrip(b"\0")), steps, paid)
            for key, steps, paid in positive[:TOP]
        ]
        return PaidRow(step, sum(paid for _, _, paid in positive), most_paid)


def pays_each_time(intrinsic_coefficient: float, count_exponent: float) -> bool:
    """Whether an agent learns from a reward that pays a text nearly as much each time in an episode
    as the first.
    """
    return intrinsic_coefficient != 0 and count_exponent < 1


def lately(rows: Sequence[PaidRow]) -> list[PaidRow]:
    """The rows of the last tenth of the steps, and at least the last row."""
    first = (1 - _LATELY) * rows[-1].step
    return [row for row in rows if row.step > first] or list(rows[-1:])


def most_paid(rows: Sequence[PaidRow]) -> list[PaidText]:
    """The texts of all rows with their sums, the most paid first."""
    steps: dict[str, int] = defaultdict(int)
    paid: dict[str, float] = defaultdict(float)
    for row in rows:
        for entry in row.texts:
            steps[entry.text] += entry.steps
            paid[entry.text] += entry.paid
    ranked = sorted(paid, key=lambda text: (-paid[text], text))
    return [PaidText(text, steps[text], paid[text]) for text in ranked]


def standstill(rows: Sequence[PaidRow]) -> str:
    """A sentence where an agent has come to stay with one text, which is paid again and again; else
    ''.

    Lately this text came with two fifths of the steps or more, and had half or more of what was
    paid. It is meant for rewards that pay a text each time (`pays_each_time`). Steps of other hosts
    than the first do not count as steps with the text, so that such runs seldom have the sentence.
    """
    if not rows:
        return ""
    recent = lately(rows)
    earlier = rows[: len(rows) - len(recent)]
    first_step = earlier[-1].step if earlier else 0
    total_steps = recent[-1].step - first_step
    total_paid = sum(row.total for row in recent)
    if total_steps <= 0 or total_paid <= 0:
        return ""
    text, steps, paid = most_paid(recent)[0]
    steps_share = steps / total_steps
    paid_share = paid / total_paid
    if steps_share < _LEAST_STEPS or paid_share < _LEAST_PAID:
        return ""
    return (
        f"the agent stays where one text comes again and again: {text!r} came with {100 * steps_share:.0f} % of the last "
        f"{total_steps:,} steps and had {100 * paid_share:.0f} % of what they were paid. With reward.count_exponent=3, as published, "
        "a text pays less each time in an episode"
    )


class PaidTextLog(ExitStack):
    """Writes rows to a run's paid_texts.jsonl; a resumed run drops those after `resume_step`, None
    for a new run.

    Raises OSError, which names the file: it cannot be written, also in `write`.
    """

    def __init__(self, workdir: Path, resume_step: int | None) -> None:
        super().__init__()
        self._path = workdir / FILE_NAME
        last_step = -1 if resume_step is None else resume_step
        self._file = self.enter_context(
            append_lines(self._path, lambda line: json.loads(line)["step"] <= last_step)
        )

    def write(self, row: PaidRow) -> None:
        line = json_line(row._asdict() | {"texts": [list(paid) for paid in row.texts]})
        with naming(self._path):
            self._file.write(line)
            self._file.flush()


def read(workdir: Path) -> Iterator[PaidRow]:
    """The rows of a run, none without the file."""
    for row in read_json_lines(workdir / FILE_NAME, ["step"]):
        yield PaidRow(row["step"], row["total"], [PaidText(*paid) for paid in row["texts"]])


def as_table(row: PaidRow) -> MetricTable:
    """The texts of a row with their shares of all that was paid."""
    cells: list[tuple[str, ...]] = []
    for text, steps, paid in row.texts:
        share = 100 * paid / row.total
        cells.append((f"{share:.1f} %", f"{paid:.4g}", f"{steps:,}", text or "(no text)"))
    return MetricTable(("share", "paid", "steps", "text"), cells)
