"""What `rank_text` shows: texts by agents' values, and how often an expert's tokens rank first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from motif_jax.display import text_tables

_ACCURACY = re.compile(r"(.+)_(q_target|q)_rank_acc_-(\d+)")


def accuracy_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Ranking accuracies: a row per agent, kind of data and Q head; a column per token from an
    action's end.
    """
    rows: dict[tuple[str, str, str], dict[int, float]] = {}
    for agent, result in results.items():
        for name, value in result["accuracy"].items():
            match = _ACCURACY.fullmatch(name)
            if match is not None:
                key = (f"{agent} ({result['method']})", match[1], match[2].replace("_", " "))
                rows.setdefault(key, {})[int(match[3])] = value
    tokens = range(1, max((token for row in rows.values() for token in row), default=0) + 1)
    header = ["agent", "data", "values", *(f"token -{token}" for token in tokens)]
    cells = []
    for key, row in rows.items():
        cells.append([*key, *(f"{row[token]:.3f}" if token in row else "–" for token in tokens)])
    return header, cells


def terminal_text(results: Mapping[str, Any]) -> str:
    """The text for the terminal."""
    parts = []
    header, rows = accuracy_rows(results)
    if rows:
        table = text_tables.markdown(header, rows)
        parts.append(f"share of pairs in which the expert's token has the greater Q\n{table}")
    for agent, result in results.items():
        for name, ends in result["lists"].items():
            for end, ranked in ends.items():
                first = ", ".join(
                    f"{entry['text']!r} {entry['advantage']:+.2f}" for entry in ranked[:5]
                )
                parts.append(f"{agent}: {name} of {end} advantage: {first or 'none'}")
    return "\n".join(parts)
