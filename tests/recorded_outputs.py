"""Outputs that a user parses, compared with the texts in tests/recorded.

A recording is for what is read by people or by other programs: the help of a command, a report, a
summary, the values of the variants. What a function computes is asserted in its test. After a
change that means to change an output:

    python -m pytest tests/schema_test.py --record

replaces the recordings of these tests and prints what changed. The change is read before it is
committed.
"""

from __future__ import annotations

import difflib
import math
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "recorded"
# What `--record` changed in this run; conftest.py prints it at the end.
CHANGES: list[str] = []
_NUMBER = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w])")
_DATA = re.compile(r"[A-Za-z0-9+/=]{300,}")
# Digests, revisions, parts of names, ids in SVG; a number alone is none, but for a checksum before
# a digest.
_HEX = re.compile(
    r"(?<![.\w])p?(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,}\b(\+changes)?|\b\d{8}(?= [0-9a-f]{7,} \{)"
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?")
_REVISION = re.compile(r"revision `[^`]*`|(\"|&quot;)(git_revision|platform)\1: [^\n]*")
_VERSIONS = re.compile(r'("|&quot;)versions\1: \{[^}]*\}')
# The checksum of a line that has a time in it.
_CHECKED = re.compile(r"\b[0-9a-f]{8} (?=\{)")
_OF_THE_MACHINE = re.compile(
    r"""(["'][\w/ ]*(?:second|time|latency|bytes|workers|cores|(?:wait|device|host|act|blocked|assemble|lookup|put|update|late)_share)"""
    r"""[\w/ ]*["']: )[-+.\de]+"""
)
_PER_SECOND = re.compile(r"[\d.,]+ (\w+ a second|\w+/s|s|ms|seconds)\b")
# Stands for what differs from run to run.
_ANY = "\N{ASTERISM}"
_RELATIVE = 0.01
_ABSOLUTE = 1e-4


def outcome_text(
    call: Callable[..., Any], *arguments: Any, folder: Any = None, **named: Any
) -> str:
    """The value of a call, or its error, as a text in which `folder` is called FOLDER."""
    try:
        text = str(call(*arguments, **named))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    text = re.sub(r"maximum recursion depth exceeded[\w ]*", "too deep", text)
    return text if folder is None else text.replace(str(folder), "FOLDER")


def is_close(one: str, other: str) -> bool:
    """Whether two words are equal, or two numbers within one per cent; whole numbers count as
    words.
    """
    if one == other or _ANY in (one, other):
        return True
    numbers = _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other) and "." in one + other
    return bool(numbers) and math.isclose(
        float(one), float(other), rel_tol=_RELATIVE, abs_tol=_ABSOLUTE
    )


def assert_matches_recording(name: str, text: str, record: bool, *, exact: bool = True) -> None:
    """Compares a text with the file `name` in tests/recorded; with `record` it replaces the file.

    `exact` compares to the letter, as is right for settings and help. Otherwise numbers with a
    point may differ by one per cent, as is right for what was computed; whole numbers and words may
    not.
    """
    path = FOLDER / name
    before = path.read_text(encoding="utf-8") if path.exists() else None
    if record:
        _replace(path, text.encode(), _changed_lines(name, before or "", text))
        return
    assert before is not None, f"tests/recorded/{name} is missing: see tests/recorded_outputs.py"
    matches = before == text if exact else _is_close_text(before, text)
    assert matches, "\n".join(_changed_lines(name, before, text)[:40])


def assert_matches_recorded_section(name: str, section: str, text: str, record: bool) -> None:
    """Compares a text, to the letter, with the part of the file `name` below the line
    `## SECTION`.
    """
    path = FOLDER / name
    sections = {}
    for part in path.read_text(encoding="utf-8").split("## ")[1:]:
        title, _, lines = part.partition("\n")
        sections[title] = lines.strip("\n")
    changed = _changed_lines(section, sections.get(section, ""), text)
    if record:
        sections[section] = text
        _replace(
            path,
            "\n".join(f"## {title}\n{lines}\n" for title, lines in sections.items()).encode(),
            changed,
        )
        return
    assert not changed, "\n".join(changed[:40])


def _is_close_text(one: str, other: str) -> bool:
    words = _NUMBER.split(one)
    others = _NUMBER.split(other)
    return len(words) == len(others) and all(map(is_close, words, others))


def _changed_lines(name: str, before: str, now: str) -> list[str]:
    """The lines that went (-) and that came (+)."""
    lines = difflib.unified_diff(
        before.splitlines(), now.splitlines(), f"recorded {name}", f"{name} now", n=0, lineterm=""
    )
    return list(lines)


def _replace(path: Path, data: bytes, changed: list[str]) -> None:
    if not changed:
        return
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    CHANGES.extend(changed)


def replaced(text: str, names: Mapping[Path, str]) -> str:
    """A text with names in place of paths, the longest first, and of what another day or machine
    writes in another way.
    """
    for path, name in sorted(names.items(), key=lambda item: -len(str(item[0]))):
        text = text.replace(str(path), name)
    # A part of the random name may have no letter, or no digit.
    store = rf"\b{re.escape(socket.gethostname())}-[0-9a-f]{{8}}-[0-9a-f]{{12}}\b"
    text = re.sub(store, "HOST-HEX-HEX", text)
    any_number = ((_OF_THE_MACHINE, r"\1" + _ANY), (_PER_SECOND, _ANY + r" \1"))
    for pattern, name in (
        *any_number,
        (_DATE, "DATE"),
        (_CHECKED, "CHECKED "),
        (_REVISION, "revision"),
        (_HEX, "HEX"),
        (_DATA, "DATA"),
        (_VERSIONS, "VERSIONS"),
    ):
        text = pattern.sub(name, text)
    return text
