"""The page of `rank_text`: what agents' values rank first and last, and how often an expert's tokens come first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any

from motif_jax.reports import html, text_tables
from motif_jax.reports.html import TableCell

_ACCURACY = re.compile(r"(.+)_(q_target|q)_rank_acc_-(\d+)")


def accuracy_rows(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Ranking accuracies as a table: a row for each agent, kind of data and Q; columns by token from an action's end."""
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
        parts.append(
            "share of pairs in which the expert's token has the greater Q\n"
            + text_tables.markdown(header, rows)
        )
    for agent, about in found.items():
        for name, ends in about["lists"].items():
            for end, ranked in ends.items():
                first = ", ".join(f"{each['text']!r} {each['advantage']:+.2f}" for each in ranked[:5])
                parts.append(f"{agent}: {name} of {end} advantage: {first or 'none'}")
    return "\n".join(parts)


def render(found: Mapping[str, Any], data: str) -> str:
    """The page."""
    sections, links = [], {}
    header, rows = accuracy_rows(found)
    if rows:
        table = html.table(header, [[TableCell(text) for text in row] for row in rows], "accuracy-table")
        note = "Share of pairs of one beginning in which Q of the expert's token, counted from its action's end (-1 is the end of the action), exceeds that of the other's."
        sections.append(html.section("Ranking accuracy", "accuracy", table, note=note))
        links["accuracy"] = "Ranking accuracy"
    for number, (agent, about) in enumerate(found.items()):
        parts: list[str] = []
        for name, ends in about["lists"].items():
            for end, ranked in ends.items():
                cells = [
                    [
                        TableCell(each["text"], code=True),
                        TableCell(f"{each['advantage']:+.3f}", each["advantage"]),
                        TableCell(f"{each['times']:,}", each["times"]),
                    ]
                    for each in ranked
                ]
                table = html.table(["said", "mean advantage", "times"], cells, f"list-{number}-{len(parts)}")
                parts.append(f"<h3>{escape(f'{name} of {end} advantage')}</h3>{table}" if cells else "")
        title = f"{agent} ({about['method']})"
        sections.append(
            html.section(title, f"agent-{number}", *parts, note=f"{about['dialogues']:,} dialogues")
        )
        links[f"agent-{number}"] = title
    return html.page("What values rank first", data, sections, links)
