"""The page of `overview`: a row for each run, with its state, newest value, curve and pages."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from motif_jax.reports import html
from motif_jax.reports.charts import short
from motif_jax.reports.html import Cell, Markup
from motif_jax.reports.overview import AT_REST, DAMAGED, RUNNING, STOPPED, WHOLE, RunState
from motif_jax.support.progress import format_seconds

_WIDTH, _HEIGHT, _POINTS = 150, 32, 75
_HEADER = ("run", "stage", "state", "done", "newest value", "curve", "changed", "pages")
_ORDER = (RUNNING, STOPPED, DAMAGED, AT_REST, WHOLE)


def render(runs: Sequence[RunState], root: Path, page: Path, now: float, refresh: float | None) -> str:
    """The page.

    Args:
      runs: what there is.
      root: the folder that was searched.
      page: where the page will lie; links are relative to it.
      now: seconds since the epoch.
      refresh: seconds after which a browser loads it again; None: it does not change any more.
    """
    counts = {state: sum(run.state == state for run in runs) for state in _ORDER}
    tiles = html.tiles([(state, f"{number}", "runs") for state, number in counts.items() if number])
    ordered = sorted(runs, key=lambda run: (_ORDER.index(run.state), -run.changed, str(run.folder)))
    about: dict[Path, list[RunState]] = {}
    for run in runs:
        for named in dict.fromkeys(run.about):
            about.setdefault(named, []).append(run)
    rows = [_row(run, about, root, page, now) for run in ordered]
    table = html.table(_HEADER, rows, "runs", search=True, empty=f"there is no run below {root}")
    written = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    again = f"; loads itself again every {refresh:g} s while runs go on" if refresh else ""
    made = html.page(
        "Runs", f"{root}, {written}{again}", [html.section("Runs", "all", tiles, table, note=_NOTE)]
    )
    if refresh:
        made = made.replace("<head>", f'<head><meta http-equiv="refresh" content="{refresh:g}">', 1)
    return made


_NOTE = (
    "Stopped: not done, and no process works in it; the same command goes on with it. At rest: no process works in it, and its stage does "
    "not write down whether it is done. A report stands with every run that it is about."
)


def _row(
    run: RunState, about: Mapping[Path, Sequence[RunState]], root: Path, page: Path, now: float
) -> list[Cell | Markup]:
    curve = run.curve
    good = np.flatnonzero(np.isfinite(curve.y)) if curve is not None else np.empty(0, int)
    newest = float(curve.y[good[-1]]) if curve is not None and len(good) else None
    age = max(0.0, now - run.changed)
    return [
        Cell(_shown(run.folder, root)),
        Cell(run.stage),
        Cell(run.state, note=run.trouble),
        Cell("" if run.done is None else f"{100 * run.done:.0f} %", run.done),
        Cell("" if newest is None else short(newest), newest, note=run.metric),
        Markup(_sparkline(run) if len(good) > 1 else ""),
        Cell(f"{format_seconds(age)} ago", age),
        Markup(_links(run, about.get(run.folder.resolve(), ()), page)),
    ]


def _shown(folder: Path, root: Path) -> str:
    return "." if folder == root else str(folder.relative_to(root))


def _links(run: RunState, about: Sequence[RunState], page: Path) -> str:
    """Its own pages, and those of runs whose configs name it."""
    files = dict.fromkeys([*run.pages, *(path for other in about for path in other.pages)])
    parts = []
    for path in files:
        if path.resolve() == page.resolve():
            continue
        target = os.path.relpath(path.resolve(), page.resolve().parent)
        name = path.stem if path.parent == run.folder else f"{path.parent.name}/{path.stem}"
        parts.append(html.link(target, name))
    return " ".join(parts)


def _sparkline(run: RunState) -> str:
    curve = run.curve
    assert curve is not None
    good = np.isfinite(curve.y)
    x, y = np.asarray(curve.x, float)[good], np.asarray(curve.y, float)[good]
    chosen = np.unique(np.linspace(0, len(x) - 1, min(_POINTS, len(x))).astype(int))
    x, y = x[chosen], y[chosen]
    across = (x - x[0]) / ((x[-1] - x[0]) or 1.0) * (_WIDTH - 4) + 2
    down = _HEIGHT - 3 - (y - y.min()) / (np.ptp(y) or 1.0) * (_HEIGHT - 6)
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(across, down, strict=True))
    said = f"{run.metric}: from {short(float(y[0]))} to {short(float(y[-1]))}"
    return (
        f'<svg class="spark" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(said)}"><title>{escape(said)}</title><path class="line c0" d="M{path}"/></svg>'
    )
