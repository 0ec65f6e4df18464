"""The page of `rank_text`: texts by agents' values, and how often an expert's tokens rank first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from motif_jax.reports import page, text_tables
from motif_jax.reports.html import TableCell, number_cell
from motif_jax.reports.page import Section, Table

_ACCURACY = re.compile(r"(.+)_(q_target|q)_rank_acc_-(\d+)")


def accuracy_rows(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Ranking accuracies: a row per agent, kind of data and Q head; a column per token from an action's end."""
    rows: dict[tuple[str, str, str], dict[int, float]] = {}
    for agent, about in found.items():
        for name, value in about["accuracy"].items():
            if match := _ACCURACY.fullmatch(name):
                key = (f"{agent} ({about['method']})", match[1], match[2].replace("_", " "))
                rows.setdefault(key, {})[int(match[3])] = value
    most = max((token for row in rows.values() for token in row), default=0)
    header = ["agent", "data", "values", *(f"token -{token}" for token in range(1, most + 1))]
    return header, [
        [*key, *(f"{row[token]:.3f}" if token in row else "–" for token in range(1, most + 1))]
        for key, row in rows.items()
    ]


def in_words(found: Mapping[str, Any]) -> str:
    """The text for the terminal."""
    parts = []
    header, rows = accuracy_rows(found)
    if rows:
        table = text_tables.markdown(header, rows)
        parts.append(f"share of pairs in which the expert's token has the greater Q\n{table}")
    for agent, about in found.items():
        for name, ends in about["lists"].items():
            for end, ranked in ends.items():
                first = ", ".join(f"{each['text']!r} {each['advantage']:+.2f}" for each in ranked[:5])
                parts.append(f"{agent}: {name} of {end} advantage: {first or 'none'}")
    return "\n".join(parts)


def render(found: Mapping[str, Any], data: str) -> str:
    """The page."""
    sections = []
    header, rows = accuracy_rows(found)
    if rows:
        note = "Share of pairs of one beginning in which Q of the expert's token, counted from its action's end (-1 is the end of the action), exceeds that of the other's."
        table = Table("accuracy-table", header, rows)
        sections.append(Section("Ranking accuracy", "accuracy", [table], note))
    for number, (agent, about) in enumerate(found.items()):
        lists = {f"{name} of {end} advantage": ranked for name, ends in about["lists"].items() for end, ranked in ends.items()}  # fmt: skip
        tables = []
        for place, (heading, ranked) in enumerate(lists.items()):
            cells = []
            for of in ranked:
                numbers = number_cell(of["advantage"], "+.3f"), number_cell(of["times"], ",")
                cells.append((TableCell(of["text"], code=True), *numbers))
            columns = ["said", "mean advantage", "times"]
            tables += [Table(f"list-{number}-{place}", columns, cells, heading)] if cells else []
        title, note = f"{agent} ({about['method']})", f"{about['dialogues']:,} dialogues"
        sections.append(Section(title, f"agent-{number}", tables, note))
    return page.render("What values rank first", data, sections)
