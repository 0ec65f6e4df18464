"""The table of all messages on a reward's page: numbers as data, rows drawn as they come into view.

A row of markup takes some two kilobytes, and a browser seconds for tens of thousands of them; a row of numbers takes
about a hundred bytes, and only the rows in sight are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """All messages, or the `max_rows` most frequent, with search and sorting, the best liked first; a line marks the threshold."""
    if not len(explanation.messages):
        return '<div class="empty">there are no messages</div>'
    data = html.embed_json(table_data(explanation, max_rows), f"{NAME}-data")
    width = ' class="wide"' if len(explanation.rewards) > 1 else ""
    return (
        f'<div id="{NAME}-holder"{width}>{_NO_SCRIPT}</div>{data}<script>{html.asset("explain.js")}</script>'
    )


def table_data(explanation: Explanation, max_rows: int | None) -> dict[str, Any]:
    """The table as the page's script reads it (assets/explain.js), best liked first.

    Returns:
      `columns`: {title, kind, values [N]}, or for what is computed from others 'paid' {of, pays}: a string of
      0 and 1, where what is paid is the number of column `of`, and 'difference' {first, second}: numbers of columns.
      None is what has no value. `line`: where the threshold of the first reward is drawn, or None.
    """
    first = explanation.rewards[0]
    kept = np.argsort(-explanation.counts, kind="stable")[:max_rows]
    # Those without a reward come last.
    kept = np.sort(kept)
    kept = kept[np.argsort(-first.normalised[kept], kind="stable")]
    history = any(len(reward.evaluations) > 1 for reward in explanation.rewards)
    names = iter(titles(explanation.rewards, history))
    columns: list[dict[str, Any]] = [
        {"title": "message", "kind": "text", "values": [explanation.messages[i] for i in kept]},
        {"title": "seen (times)", "kind": "count", "values": explanation.counts[kept].tolist()},
    ]
    places = []
    for reward in explanation.rewards:
        places.append(len(columns))
        columns += _columns(reward, kept, names, places[-1], history)
    if len(places) == 2:
        columns.append({"title": next(names), "kind": "difference", "first": places[0], "second": places[1]})
    line = None
    if first.threshold is not None:
        text = f"threshold {first.threshold:.3f}: what stands below pays nothing"
        line = {"column": places[0], "paid": places[0] + 2, "text": text}
    return {"columns": columns, "line": line}


def _columns(
    reward: ExplainedReward, kept: np.ndarray, names: Any, place: int, history: bool
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"title": next(names), "kind": "signed", "values": _numbers(reward.normalised[kept], 5)},
        {"title": next(names), "kind": "plain", "values": _numbers(reward.raw[kept], 4)},
        {"title": next(names), "kind": "paid", **_paid(reward, kept, place)},
    ]
    if reward.disagreement is not None:
        spread = _numbers(reward.disagreement[kept], 4)
        found.append({"title": next(names), "kind": "spread", "values": spread})
    if history:
        curves = np.round(reward.history[:, kept].T.astype(float), 2)
        values = [row if np.isfinite(row).all() else None for row in curves]
        found.append(
            {
                "title": next(names),
                "kind": "curve",
                "values": [None if row is None else row.tolist() for row in values],
            }
        )
    return found


def _paid(reward: ExplainedReward, kept: np.ndarray, place: int) -> dict[str, Any]:
    pays, paid, normalised = reward.pays[kept], reward.paid[kept], reward.normalised[kept]
    if np.allclose(paid[pays], normalised[pays], rtol=1e-5):
        return {"of": place, "pays": "".join("01"[int(one)] for one in pays)}
    return {"values": _numbers(np.where(reward.rated[kept], paid, np.nan), 5)}


def _numbers(values: np.ndarray, digits: int) -> list[float | None]:
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values.tolist()]
