"""Tables that programs of the tests write into the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Markdown; the first row's keys are the head."""
    cells = [list(rows[0]), ["---"] * len(rows[0]), *([str(cell) for cell in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def write_between(page: Path, program: str, text: str) -> None:
    """Replaces what stands in a page between the two marks of `program`, the name of a file in tests/."""
    marks = f"<!-- {program}: written by tests/{program}.py --page -->", f"<!-- {program}: end -->"
    before, begin, rest = page.read_text(encoding="utf-8").partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not (begin and end):
        raise SystemExit(f"error: --page={page}: has no lines {marks[0]} and {marks[1]}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")
