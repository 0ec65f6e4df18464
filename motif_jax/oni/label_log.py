"""Reads and writes the label log of an online run: the labels that its reward learned from, in
their order.

The append-only file of checksummed lines (`core/checked_lines.py`) is both the table of labels and
the data set. Each line has the number of the first batch that is paid with the label.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from motif_jax.core.checked_lines import LineWriter, decode_line, read_lines
from motif_jax.core.errors import UserError
from motif_jax.oni.label_queue import Label

FILE = "labels.jsonl"


def _encode(label: Label) -> tuple[str, dict[str, Any]]:
    """Key and object of a label's line; the key is a hash of its texts."""
    value: dict[str, Any] = {
        "at": label.update_index,
        "step": label.step,
        "items": list(label.items),
        "label": label.label,
        "met": label.first_step,
    }
    if label.probability is not None:
        value["p"] = label.probability
    if label.seconds:
        # Never 0, which is of an answer that was not asked for.
        value["seconds"] = max(round(label.seconds, 4), 1e-4)
    if label.tokens:
        value["tokens"] = label.tokens
    key = hashlib.blake2b("\0".join(label.items).encode(), digest_size=16).hexdigest()
    return key, value


def _decode(value: dict[str, Any]) -> Label:
    return Label(
        items=tuple(value["items"]),
        label=int(value["label"]),
        probability=value.get("p"),
        seconds=float(value.get("seconds", 0.0)),
        tokens=int(value.get("tokens", 0)),
        update_index=int(value["at"]),
        step=int(value["step"]),
        first_step=int(value["met"]),
    )


def read_log(path: Path, end: int | None = None) -> Iterator[Label]:
    """Yields the labels of a log up to byte `end` (None: all), without torn lines; none where there
    is no file.
    """
    return (_decode(value) for _, value in read_lines(path, end=end))


def read_labels(path: Path, length: int, count: int, checkpoint: str, remedy: str) -> list[Label]:
    """The `count` labels in the first `length` bytes of a log; UserError, which names `checkpoint`,
    if some are lost.
    """
    labels = list(read_log(path, length))
    if len(labels) != count:
        raise UserError(
            f"{path} holds {len(labels)} labels, {checkpoint} was written with {count}: {remedy}"
        )
    return labels


class LabelLog(LineWriter):
    """The one writer of a run's log; makes the file. Raises BlockingIOError: another process writes
    it.
    """

    def __init__(self, path: Path) -> None:
        # The byte after which the labels lie that `rewind` returned, until others are written.
        self._position: int | None = None
        super().__init__(path)

    def add(self, labels: Iterable[Label]) -> None:
        """Writes labels; only `sync` waits for the disk.

        The first take the place of those that `rewind` returned.
        """
        new = list(labels)
        if not new:
            return
        if self._position is not None:
            self.cut(self._position)
            self._position = None
        self.append(map(_encode, new), wait=False)

    def length(self) -> int:
        """Bytes of the file, without the labels that `rewind` returned."""
        return super().length() if self._position is None else self._position

    def rewind(self, length: int) -> list[Label]:
        """Returns the labels after a checkpoint, at which the log had `length` bytes.

        They have been paid for, and stay in the file until `add` writes labels: a run that ends
        before finds them again.
        """
        later = []
        self._position = length
        with open(self.path, "rb") as file:
            file.seek(length)
            for line in file:
                record = decode_line(line)
                # A line that a kill has torn is left out.
                if record is not None:
                    later.append(_decode(record[1]))
        return later
