"""The table of all messages on a reward's page: numbers as data, drawn by the page's script as they scroll into view.

A row takes about 100 bytes as numbers and 2 KB as markup; a browser needs seconds for tens of thousands of markup rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from motif_jax.reports import html
from motif_jax.reports.explain_data import ExplainedReward, Explanation

NAME = "messages"
_NO_SCRIPT = (
    "<noscript><p>The table is drawn by the page's own script; messages.csv holds the same.</p></noscript>"
)


def titles(rewards: Sequence[ExplainedReward], history: bool) -> list[str]:
    """Titles of the columns after the text and its count."""
    names = []
    for reward in rewards:
        of = f" · {reward.name}" if len(rewards) > 1 else ""
        names += [f"normalised{of}", f"raw{of}", f"paid first time{of}"]
        names += [f"disagreement{of}"] if reward.disagreement is not None else []
        names += [f"over training{of}"] if history else []
    return names + (["difference"] if len(rewards) == 2 else [])


def message_table(explanation: Explanation, max_rows: int | None) -> str:
    """All messages, or the `max_rows` most frequent, by descending reward; a line marks the threshold."""
    if not len(explanation.messages):
        return '<div class="empty">there are no messages</div>'
    data = html.embed_json(table_data(explanation, max_rows), f"{NAME}-data")
    width = ' class="wide"' if len(explanation.rewards) > 1 else ""
    return (
        f'<div id="{NAME}-holder"{width}>{_NO_SCRIPT}</div>{data}<script>{html.asset("explain.js")}</script>'
    )


def table_data(explanation: Explanation, max_rows: int | None) -> dict[str, Any]:
    """The table as the page's script reads it (assets/explain.js), by descending reward.

    `columns` are {title, kind, values [N]}, None for no value; `line` is where the first reward's threshold is drawn, or None.
    """
    first = explanation.rewards[0]
    kept = np.argsort(-explanation.counts, kind="stable")[:max_rows]
    # Messages without a reward come last.
    kept = np.sort(kept)
    kept = kept[np.argsort(-first.normalised[kept], kind="stable")]
    history = any(len(reward.evaluations) > 1 for reward in explanation.rewards)
    names = iter(titles(explanation.rewards, history))
    columns: list[dict[str, Any]] = [
        {"title": "message", "kind": "text", "values": [explanation.messages[i] for i in kept]},
        {"title": "seen (times)", "kind": "count", "values": explanation.counts[kept].tolist()},
    ]
    for reward in explanation.rewards:
        columns += _columns(reward, kept, names, history)
    if len(explanation.rewards) == 2:
        one, other = (reward.normalised[kept] for reward in explanation.rewards)
        columns.append({"title": next(names), "kind": "signed", "values": html.numbers(other - one, 5)})
    line = None
    if first.threshold is not None:
        text = f"threshold {first.threshold:.3f}: what stands below pays nothing"
        line = {"column": 2, "paid": 4, "text": text}
    return {"columns": columns, "line": line}


def _columns(
    reward: ExplainedReward, kept: np.ndarray, names: Iterator[str], history: bool
) -> list[dict[str, Any]]:
    paid = np.where(reward.rated[kept], reward.paid[kept], np.nan)
    found = [
        ("signed", html.numbers(reward.normalised[kept], 5)),
        ("plain", html.numbers(reward.raw[kept], 4)),
    ]
    found.append(("paid", html.numbers(paid, 5)))
    if reward.disagreement is not None:
        found.append(("spread", html.numbers(reward.disagreement[kept], 4)))
    if history:
        curves = np.round(reward.history[:, kept].T.astype(float), 2)
        found.append(("curve", [row.tolist() if np.isfinite(row).all() else None for row in curves]))
    return [{"title": next(names), "kind": kind, "values": values} for kind, values in found]
