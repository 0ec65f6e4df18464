"""The kinds of files that are read: how a good one is made, and how its users read it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def put(folder: Path, name: str, content: Any) -> Path:
    """Writes text, bytes, or anything else as JSON; returns the path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(*rows: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


# Harms at random of a file's bytes, and of the values in it; the second of those that take long to be read.
USUAL, FEW = (8, 30), (1, 4)


@dataclasses.dataclass(frozen=True)
class Reader:
    """A kind of file.

    Attributes:
      make: writes a good one into a folder, with what belongs to it, and returns the file that is damaged.
      read: reads it as its users do.
      cases: harms at random of bytes, and of values in JSON.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    cases: tuple[int, int] = USUAL


class Readers(dict[str, Reader]):
    """Kinds of file by name."""

    def of(self, make: Callable[[Path], Path]) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
        """Takes the function below it as what reads the file that `make` writes."""

        def add(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
            self[read.__name__] = Reader(make, read)
            return read

        return add

    def each(
        self,
        kind: str,
        names: Iterable[str],
        make: Callable[[str], Callable[[Path], Path]],
        read: Callable[[Path], Any],
        cases: tuple[int, int] = USUAL,
    ) -> None:
        """Takes `read` as what reads each of several files that belong together, of which `make` says how one is written."""
        for name in names:
            self[f"{kind} {name}"] = Reader(make(name), read, cases)
