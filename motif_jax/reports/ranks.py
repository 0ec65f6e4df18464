"""What `rank_text` shows: texts by agents' values, and how often an expert's tokens rank first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from motif_jax.display import text_tables

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
