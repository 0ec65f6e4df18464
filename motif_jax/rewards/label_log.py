"""The label log of an online run: the labels that its reward learned from, in their order.

One append-only file of checksummed lines (`support/checked_lines.py`) is the table of labels and the data set. Each line carries
the number of the batch before whose rewards it took effect.
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


def _encode(label: Label) -> tuple[str, dict[str, Any]]:
    value: dict[str, Any] = {"at": label.number, "step": label.step}
    value |= {"items": list(label.items), "label": label.label, "met": label.met}
    if label.probability is not None:
        value["p"] = label.probability
    if label.seconds:
        value["seconds"] = round(label.seconds, 4)
    if label.tokens:
        value["tokens"] = label.tokens
    return hashlib.blake2b("\0".join(label.items).encode(), digest_size=16).hexdigest(), value


def _decode(value: dict[str, Any]) -> Label:
    return Label(
        int(value["at"]),
        int(value["step"]),
        tuple(value["items"]),
        int(value["label"]),
        value.get("p"),
        int(value["met"]),
        float(value.get("seconds", 0.0)),
        int(value.get("tokens", 0)),
    )


def read_log(path: Path, end: int | None = None) -> Iterator[Label]:
    """Yields the labels of a log up to byte `end` (None: all); torn lines, and a file that is not there, hold nothing."""
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
    labels = list(read_log(path, length))
    if len(labels) != count:
        raise UserError(f"{path} holds {len(labels)} labels, {checkpoint} was written with {count}: {remedy}")
    return labels


class LabelLog:
    """The one writer of a run's log.

    Args:
      path: of the file, which is made where there is none.

    Raises:
      UserError: it cannot be written, or another process does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._writer = LineWriter(path)
        except BlockingIOError:
            raise UserError(f"{path} is being written by another process") from None
        self._closed = False

    @property
    def length(self) -> int:
        """Bytes of the file."""
        return self._writer.length()

    def append(self, labels: Iterable[Label]) -> None:
        """Writes labels; only `sync` waits until they are on the disk.

        Raises:
          UserError: the disk is full, or the file cannot be written.
        """
        self._writer.append(map(_encode, labels), wait=False)

    def sync(self) -> None:
        """Waits until what was written is on the disk."""
        self._writer.sync()

    def cut(self, length: int) -> list[Label]:
        """Takes away the labels written after a checkpoint, which had `length` bytes; returns them."""
        kept = sum(1 for _ in read_log(self.path, length))
        later = list(itertools.islice(read_log(self.path), kept, None))
        self._writer.cut(length)
        return later

    def close(self) -> None:
        """Lets go of the file; the second time does nothing."""
        if not self._closed:
            self._closed = True
            self._writer.close()
