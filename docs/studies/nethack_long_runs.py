"""What is kept of the runs of nethack_long.py beside the rows of their games, and the picture of
them.

    python docs/studies/nethack_long_runs.py FOLDER    # keeps a line of each finished run
    python docs/studies/nethack_long_runs.py           # draws the picture
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from motif_jax.core.files import read_json_lines
from motif_jax.display.charts import COLOURS
from motif_jax.reports.study import append_row

STUDIES = Path(__file__).parent
KEPT = STUDIES / "nethack_long_runs.jsonl"
PICTURE = STUDIES.parent / "images" / "results_nethack.png"
STRETCH = 500_000  # environment steps
MILLION = 1_000_000
METHODS = {
    "both": "both",
    "task": "score alone",
    "taste": "reward model alone",
    "both_random": "both, pairs of random play",
    "both_lexicon": "both, lexicon's labels",
    "both_alike": "both, all sentences alike",
}
# Longer than between two rows of metrics.jsonl: the run was stopped, and started again.
STOPPED_SECONDS = 60.0


def kept_line(run: Path) -> dict[str, Any]:
    """What is kept of a finished run, in whose folder `games/` is its evaluation.

    Other evaluations in its folder, of greedy play or of earlier checkpoints, give their scores.
    """
    method, _, seed = run.name.rpartition("-")
    episodes = list(read_json_lines(run / "episodes.jsonl"))
    steps = json.loads((run / "config.json").read_text(encoding="utf-8"))["train_for_env_steps"]
    ends = np.array([episode["step"] for episode in episodes])
    stretch = np.minimum(ends, steps - 1) // STRETCH
    scores = np.array([episode["score"] for episode in episodes])
    games = np.bincount(stretch)
    times = np.array([row["time"] for row in read_json_lines(run / "metrics.jsonl")])
    pauses = np.diff(times)
    return {
        "method": method,
        "seed": int(seed),
        "steps": steps,
        "hours": round(float(pauses[pauses < STOPPED_SECONDS].sum()) / 3600, 2),
        "starts": len(list((run / "tensorboard").glob("events*"))),
        "score": [round(float(value), 1) for value in np.bincount(stretch, scores) / games],
        "games": games.tolist(),
        "paid": _paid(run / "paid_texts.jsonl"),
        "messages": _messages(run / "games" / "messages.json"),
        "scores": {
            file.parent.name: [row["score"] for row in read_json_lines(file)]
            for file in sorted(run.glob("*/episodes.jsonl"))
            if file.parent.name != "games"
        },
    }


def _paid(file: Path) -> list[list[list[Any]]]:
    """For each quarter of the training the ten texts that were paid most, as far as each row of the
    file names them, with their share of all that was paid.
    """
    if not file.is_file():
        return []
    rows = list(read_json_lines(file))
    last = rows[-1]["step"] + 1
    quarters: list[Counter[str]] = [Counter() for _ in range(4)]
    totals = [0.0] * 4
    for row in rows:
        quarter = 4 * row["step"] // last
        totals[quarter] += row["total"]
        for text, _, reward in row["texts"]:
            quarters[quarter][text] += reward
    return [
        [[text, round(reward / total, 4)] for text, reward in paid.most_common(10)]
        for paid, total in zip(quarters, totals, strict=True)
    ]


def _messages(file: Path) -> dict[str, int]:
    """In how many games of the evaluation a message of each kind came, at least: each message is
    counted by itself, so that of those of a kind the most frequent one counts.
    """
    kinds = {"faints": "You faint", "eats a food ration": "You finish eating the food ration"}
    messages = json.loads(file.read_text(encoding="utf-8"))
    return {
        kind: max((row["episodes"] for row in messages if part in row["text"]), default=0)
        for kind, part in kinds.items()
    }


def keep(folder: Path) -> None:
    """Adds the runs of a study's folder whose games are played, and that are not kept yet."""
    known = {(line["method"], line["seed"], line["steps"]) for line in _kept()}
    for done in sorted(folder.glob("*/games/done.txt")):
        if (done.parents[1] / "episodes.jsonl").is_file():
            line = kept_line(done.parents[1])
            if (line["method"], line["seed"], line["steps"]) not in known:
                append_row(KEPT, line)
                print(f"{line['method']}, seed {line['seed']}: {line['hours']} hours")


def _kept() -> list[dict[str, Any]]:
    return list(read_json_lines(KEPT))


def of_methods(steps: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each method with its kept runs of as many million steps, where it has some."""
    for method in METHODS:
        runs = [
            line
            for line in _kept()
            if line["method"] == method and line["steps"] == steps * MILLION
        ]
        if runs:
            yield method, runs


def _draw(axes: Axes, steps: int) -> None:
    """A line a method, the mean over its seeds, and a band from the lowest seed to the highest."""
    for method, runs in of_methods(steps):
        scores = np.array([line["score"] for line in runs])
        million = (np.arange(scores.shape[1]) + 0.5) * STRETCH / MILLION
        colour = COLOURS[list(METHODS).index(method) % len(COLOURS)]
        axes.plot(million, scores.mean(0), color=colour, label=METHODS[method])
        axes.fill_between(
            million, scores.min(0), scores.max(0), color=colour, alpha=0.2, linewidth=0
        )
    axes.set_xlabel("million steps")
    axes.set_ylabel("score of a game, mean")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)


def picture() -> Figure:
    """The score over the steps of the training, a panel for each length of the training."""
    lengths = [steps for steps in (16, 100) if any(of_methods(steps))]
    figure = Figure(figsize=(5.5 * len(lengths), 4), layout="constrained")
    FigureCanvasAgg(figure)
    for panel, steps in zip(
        figure.subplots(1, len(lengths), squeeze=False)[0], lengths, strict=True
    ):
        _draw(panel, steps)
    return figure


def main() -> None:
    """Keeps the runs of the folders that are named; without any, draws."""
    for folder in sys.argv[1:]:
        keep(Path(folder))
    if not sys.argv[1:]:
        picture().savefig(PICTURE, dpi=130)


if __name__ == "__main__":
    main()
