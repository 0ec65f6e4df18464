"""The label log of an online run: what its reward learned, in the order in which it learned it.

One append-only file of checksummed lines (`support/checked_lines.py`) is the table of labels and the data set. Each line carries
the number of the batch before whose rewards it took effect:

    labels     a text, or several, and what the annotator said
    trainings  gradient steps whose outcome the rewards come from
    payments   texts that a batch was the first to be paid for; for reports
    earnings   at each tenth of the run, what its best paid texts have earned; likewise
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.support.checked_lines import LineWriter, read_lines
from motif_jax.support.errors import UserError

FILE = "labels.jsonl"
_NO_KEY = "0" * 32


class Label(NamedTuple):
    """A label that the reward took up.

    Attributes:
      number: of the first batch that knew it.
      step: environment steps of the run before that batch.
      items: the text that was judged, or the pair.
      label: a verdict's place in its form (`datasets/verdicts.py`), never UNKNOWN.
      probability: of one text that of yes, of two P(first) + P(tie) / 2; None where the annotator gave none.
      met: environment steps of the run before the batch that showed the text first.
      seconds: how long the answer took; 0 where the answer store had it.
      tokens: what it cost.
    """

    number: int
    step: int
    items: tuple[str, ...]
    label: int
    probability: float | None = None
    met: int = 0
    seconds: float = 0.0
    tokens: int = 0


class RewardSteps(NamedTuple):
    """Gradient steps of the reward.

    Attributes:
      number: of the first batch that was paid with their outcome.
      step: as in `Label`.
      first: gradient steps of the run before them.
      amount: how many.
      size: they drew from so many labels, the oldest.
    """

    number: int
    step: int
    first: int
    amount: int
    size: int


class Payment(NamedTuple):
    """Texts that were paid for the first time.

    Attributes:
      number: of the batch.
      step: environment steps of the run before it.
      texts: each with the value that it had.
    """

    number: int
    step: int
    texts: dict[str, float]


class Earnings(NamedTuple):
    """What texts have earned since the run began.

    Attributes:
      number: of the first batch that is not counted.
      step: environment steps of the run before it.
      texts: those that earned most (losses too), each with the sum of what it was paid, each step divided by the text's count in
        the episode to the config's power; without coefficient.
      total: of all texts.
    """

    number: int
    step: int
    texts: dict[str, float]
    total: float


Record = Label | RewardSteps | Payment | Earnings


def _encode(record: Record) -> tuple[str, dict[str, Any]]:
    value: dict[str, Any] = {"at": record.number, "step": record.step}
    if isinstance(record, RewardSteps):
        return _NO_KEY, {**value, "train": [record.first, record.amount, record.size]}
    if isinstance(record, Payment):
        return _NO_KEY, {**value, "paid": record.texts}
    if isinstance(record, Earnings):
        return _NO_KEY, {**value, "earned": record.texts, "total": record.total}
    value |= {"items": list(record.items), "label": record.label, "met": record.met}
    if record.probability is not None:
        value["p"] = record.probability
    if record.seconds:
        value["seconds"] = round(record.seconds, 4)
    if record.tokens:
        value["tokens"] = record.tokens
    key = hashlib.blake2b("\0".join(record.items).encode(), digest_size=16).hexdigest()
    return key, value


def _decode(value: dict[str, Any]) -> Record:
    number, step = int(value["at"]), int(value["step"])
    if "train" in value:
        return RewardSteps(number, step, *map(int, value["train"]))
    if "paid" in value:
        return Payment(number, step, value["paid"])
    if "earned" in value:
        return Earnings(number, step, value["earned"], float(value["total"]))
    return Label(
        number,
        step,
        tuple(value["items"]),
        int(value["label"]),
        value.get("p"),
        int(value["met"]),
        float(value.get("seconds", 0.0)),
        int(value.get("tokens", 0)),
    )


def read_log(path: Path, end: int | None = None) -> Iterator[Record]:
    """Yields the records of a log up to byte `end` (None: all); torn lines, and a file that is not there, hold nothing."""
    return (_decode(value) for _, value in read_lines(path, end=end))


def read_labels(path: Path, length: int, count: int, checkpoint: str, remedy: str) -> list[Label]:
    """The labels of a log that a checkpoint knows of.

    Args:
      path: of the log.
      length: its bytes then.
      count: labels in it then.
      checkpoint, remedy: what to call the checkpoint, and what can be done where the log lost some.

    Raises:
      UserError: the log is not what the checkpoint was written with.
    """
    labels = [record for record in read_log(path, length) if isinstance(record, Label)]
    if len(labels) != count:
        raise UserError(f"{path} holds {len(labels)} labels, {checkpoint} was written with {count}: {remedy}")
    return labels


class LabelLog:
    """The one writer of a run's log.

    Args:
      path: of the file, which is made where there is none.

    Raises:
      UserError: it cannot be written.
      BlockingIOError: another process writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = LineWriter(path)
        self._closed = False

    @property
    def length(self) -> int:
        """Bytes of the file."""
        return self._writer.length()

    def append(self, records: Iterable[Record]) -> None:
        """Writes records; only `sync` waits until they are on the disk.

        Raises:
          UserError: the disk is full, or the file cannot be written.
        """
        self._writer.append(map(_encode, records), wait=False)

    def sync(self) -> None:
        """Waits until what was written is on the disk."""
        self._writer.sync()

    def cut(self, length: int) -> list[tuple[str, ...]]:
        """Takes away what was written behind a checkpoint; returns the items whose labels that were: the answer store has them."""
        kept = sum(1 for _ in read_log(self.path, length))
        behind = itertools.islice(read_log(self.path), kept, None)
        lost = [record.items for record in behind if isinstance(record, Label)]
        self._writer.cut(length)
        return lost

    def close(self) -> None:
        """Lets go of the file; the second time does nothing."""
        if not self._closed:
            self._closed = True
            self._writer.close()


def open_log(path: Path) -> LabelLog:
    """The log of a run.

    Raises:
      UserError: it cannot be written, or another process does.
    """
    try:
        return LabelLog(path)
    except BlockingIOError:
        raise UserError(f"{path} is being written by another process") from None
