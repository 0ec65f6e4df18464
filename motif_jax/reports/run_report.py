"""The page of one run: what was trained, what it reached, and how to see it again."""

from __future__ import annotations

import json
from pathlib import Path

from motif_jax.reports import charts, html, recorded_games
from motif_jax.reports.evaluation_sections import episodes_section, evaluation_section, headline
from motif_jax.reports.run_data import RunData
from motif_jax.reports.training_sections import (
    data_section,
    hacking_section,
    messages_section,
    provenance_section,
    reward_section,
    training_section,
)


def _accuracy_tiles(data: RunData) -> list[tuple[str, str, str]]:
    summary, column = data.reward_summary, data.reward_validation.get("validation_accs")
    if "validation/accuracy" not in summary:
        if column is None or not len(column):
            return []
        note = f"pairs without ties, after {len(column) - 1} epochs"
        return [("validation accuracy", f"{100 * column[-1]:.1f} %", note)]
    pairs = summary.get("validation/accuracy_pairs", 0)
    items = [
        (
            "validation accuracy",
            f"{100 * summary['validation/accuracy']:.1f} %",
            f"{pairs:,.0f} pairs without ties",
        )
    ]
    unseen = summary.get("validation_unseen/accuracy_pairs", 0)
    if unseen:
        shown = f"{100 * summary['validation_unseen/accuracy']:.1f} %"
        items.append(("on new messages", shown, f"{unseen:,.0f} of them: both messages never trained on"))
    return items


def _tiles(data: RunData) -> str:
    items = []
    if "pairs" in data.dataset:
        items.append(("preference pairs", data.dataset["pairs"], data.dataset.get("origin", "")))
    items += _accuracy_tiles(data)
    steps = max((curve.x[-1] for curve in data.metrics.values() if len(curve)), default=None)
    if steps is not None:
        items.append(("training steps", charts.short(float(steps)), "steps of the environments"))
    for name, evaluation in data.evaluations.items():
        speed = f"{evaluation['steps']:,} steps, {evaluation['steps_per_second']:,.0f} steps/s"
        items.append((f"episodes of {name}", f"{evaluation['episodes']:,}", speed))
    return html.tiles(items) if items else ""


def render(data: RunData, written: str) -> str:
    """Returns the page of a run."""
    text, kind = headline(data)
    sections = [
        html.section("At a glance", "glance", html.verdict(text, kind), _tiles(data)),
        evaluation_section(data),
        hacking_section(data),
        training_section(data),
        reward_section(data),
        messages_section(data),
        episodes_section(data),
        recorded_games.section(data),
        data_section(data),
        provenance_section(data),
    ]
    links = {
        "evaluation": "Evaluation", "hacking": "Reward against progress", "training": "Agent training",
        "reward": "Reward training", "messages": "Messages", "episodes": "Episodes", "training-games": "Training games", "dataset": "Dataset",
        "provenance": "How it was made",
    }  # fmt: skip
    if not data.recorded:
        del links["training-games"]
    return html.page(data.title, f"motif_jax, written {written}", sections, links)


def command_of(folder: str | Path, name: str) -> list[tuple[str, str]]:
    """Returns [(name, the command that made the run)], [] where it is unknown."""
    path = Path(folder) / "versions.json"
    command = json.loads(path.read_text(encoding="utf-8")).get("command") if path.exists() else None
    return [(name, command)] if command else []


def provenance_of(folder: str | Path, name: str) -> list[tuple[str, str]]:
    """Returns config, versions and command of a run folder as texts; missing files are left out."""
    found = []
    for file in ("config.json", "versions.json"):
        path = Path(folder) / file
        if path.exists():
            text = json.dumps(json.loads(path.read_text(encoding="utf-8")), indent=2)
            found.append((f"{name}: {file}", text))
    return found
