"""The table of docs/results.md, judges by games, and its picture, both from the rows
of the studies.

python docs/studies/judges_by_game.py
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from motif_jax.core.files import read_json_lines
from motif_jax.display.charts import COLOURS
from motif_jax.display.statistics import interquartile_mean

STUDIES = Path(__file__).parent
PICTURE = STUDIES.parent / "images" / "results_judges.png"

JUDGES = {
    "qwen15": "1.5 billion",
    "qwen05": "0.5 billion",
    "smollm2": "0.135 billion",
    "lexicon": "lexicon",
    "coin": "chance",
    "alike": "all texts alike",
    "task": "task alone",
    "random": "random",
}
_UNITS = {
    "achievements": "achievements of 22",
    "kills": "NetHack, a game",
    "score": "NetHack, points",
}
_JUDGED = ("qwen15", "qwen05", "smollm2", "lexicon", "coin")


def _of(rows: str, *judges: str, **methods: str) -> dict[str, tuple[str, str]]:
    """Judge -> a file of rows, without its ending, and the method there, which has the judge's name
    where no other is named.
    """
    methods_of_judge = {judge: judge for judge in judges} | methods
    return {judge: (rows, method) for judge, method in methods_of_judge.items()}


class Game(NamedTuple):
    """A column of the table: its title, the measure of the games, and where each judge's rows
    are.
    """

    title: str
    measure: str
    methods: dict[str, tuple[str, str]]

    @property
    def is_share(self) -> bool:
        """Whether the measure is a share of games, which is shown in per cent."""
        return self.measure == "success"


_NETHACK = {
    **_of("judges_nethack", *_JUDGED, "task", alike="any_text"),
    **_of("nethack_laptop", random="score_random"),
}
GAMES = (
    Game(
        "DoorKey",
        "success",
        _of("judges", *_JUDGED)
        | _of("minigrid", alike="doorkey_alike", task="doorkey_task", random="doorkey_random"),
    ),
    Game(
        "KeyCorridor",
        "success",
        _of("judges_keycorridor", *_JUDGED, alike="any_text")
        | _of("minigrid", task="keycorridor_task", random="keycorridor_random"),
    ),
    Game(
        "MultiRoom",
        "success",
        _of("judges_multiroom", *_JUDGED)
        | _of("minihack", task="multiroom_task", random="multiroom_random"),
    ),
    Game(
        "KeyRoom",
        "success",
        _of(
            "judges_keyroom",
            qwen15="qwen15_counted",
            qwen05="qwen05_counted",
            coin="coin_counted",
            alike="all_counted",
        )
        | _of("minihack", task="keyroom_task", random="keyroom_random"),
    ),
    Game("Crafter", "achievements", _of("judges_crafter", *_JUDGED, "task", "random")),
    Game("kills", "kills", _NETHACK),
    Game("score", "score", _NETHACK),
    Game(
        "staircase",
        "success",
        _of("judges_staircase", *_JUDGED, "task", alike="any_text")
        | _of("nethack_laptop", random="staircase_random"),
    ),
)


def games_of(game: Game, judge: str) -> np.ndarray | None:
    """The game's measure [seeds, games] of a judge's agents; None if none were trained."""
    if judge not in game.methods:
        return None
    rows, method = game.methods[judge]
    lines = [
        line for line in read_json_lines(STUDIES / f"{rows}.jsonl") if line["method"] == method
    ]
    return np.array([line["games"][game.measure] for line in lines])


def average(game: Game, values: np.ndarray) -> float:
    """The mean of shares and achievements; the interquartile mean of kills and scores, some of
    which are very large.
    """
    if game.is_share or game.measure == "achievements":
        return float(values.mean())
    return float(interquartile_mean(values.ravel()))


def cell(game: Game, judge: str) -> str:
    """The average as the table shows it; '' where no agents were trained."""
    values = games_of(game, judge)
    if values is None:
        return ""
    mean = average(game, values)
    if game.is_share:
        return f"{100 * mean:.1f} %" if 0 < mean < 0.1 else f"{100 * mean:.0f} %"
    return f"{mean:.3g}"


def table() -> str:
    """The table in Markdown."""
    lines = [
        ["judge", *(game.title for game in GAMES)],
        ["---"] * (len(GAMES) + 1),
        *([title, *(cell(game, judge) for game in GAMES)] for judge, title in JUDGES.items()),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def picture() -> Figure:
    """A panel for each game: a judge's agents are a row, with a dot for each seed and a bar to
    their average.
    """
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 4, sharey=True)
    positions = {judge: -row for row, judge in enumerate(JUDGES)}
    for game, axes in zip(GAMES, panels.flat, strict=True):
        for judge, position in positions.items():
            values = games_of(game, judge)
            if values is None:
                axes.text(0, position, " not trained", va="center", fontsize=7, color="#777777")
                continue
            scale = 100 if game.is_share else 1
            is_model = judge in ("qwen15", "qwen05", "smollm2")
            colour = COLOURS[0] if is_model else "#8a8a8a"
            axes.barh(position, scale * average(game, values), height=0.6, color=colour, alpha=0.55)
            dots = [scale * average(game, seed) for seed in values]
            axes.plot(dots, [position] * len(dots), "o", markersize=3, color="#222222")
        unit = "success, %" if game.is_share else _UNITS[game.measure]
        axes.set_title(f"{game.title} ({unit})", fontsize=9)
        axes.set_xlim(left=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.set_yticks(list(positions.values()), list(JUDGES.values()))
    return figure


def main() -> None:
    """Prints the table and writes the picture."""
    print(table())
    picture().savefig(PICTURE, dpi=130)


if __name__ == "__main__":
    main()
