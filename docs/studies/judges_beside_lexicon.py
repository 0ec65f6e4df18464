"""The table of docs/studies/judges.md that lays judges beside the lexicon: by game, from the
answers in docs/studies/judges.

python docs/studies/judges_beside_lexicon.py
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.motif.annotation.lexicon import LexiconJudge, load_lexicon
from motif_jax.motif.explanation import rank_correlation

ANSWERS = Path(__file__).parent / "judges"
# Game -> the name of its answers, its lexicon, and the lexicon's goal.
GAMES = {
    "DoorKey": ("doorkey", "minigrid.yaml", "defaultgoal"),
    "KeyCorridor": ("keycorridor", "minigrid.yaml", "defaultgoal"),
    "MultiRoom": ("multiroom", "minihack.yaml", "defaultgoal"),
    "KeyRoom": ("keyroom", "minihack.yaml", "defaultgoal"),
    "Crafter": ("crafter", "crafter.yaml", "crafter"),
    "NetHack": ("nethack", "nethack.yaml", "defaultgoal"),
}
JUDGES = {"qwen15": "1.5 billion", "qwen05": "0.5 billion", "smollm2": "0.135 billion"}
# The lexicon's preference is clear from this difference of worths on.
CLEAR = 2.0
# Texts in fewer pairs are left out of the correlation.
LEAST_PAIRS = 3


class JudgedPair(NamedTuple):
    """Two different texts, and what a model says of them in both orders."""

    first: str
    second: str
    same_winner: bool
    margin: float  # probability of the first minus that of the second, averaged over both orders


class Comparison(NamedTuple):
    """A judge beside the lexicon; the shares are NaN where there are no pairs."""

    pairs: int
    same_winner: float
    preferred: int  # pairs of which the lexicon prefers one text
    right: float
    clear: int
    right_where_clear: float
    texts: int
    correlation: float


def judged_pairs(file: Path) -> list[JudgedPair]:
    """The pairs of a file of conversations, each of which was asked in both orders."""
    margins: dict[tuple[str, str], float] = {}
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            answer = json.loads(line)
            first, second = answer["items"]
            margins[first, second] = answer["probabilities"][0] - answer["probabilities"][1]
    pairs = []
    for (first, second), margin in margins.items():
        if first < second:
            reverse = -margins[second, first]
            is_same = (margin > 0) == (reverse > 0)
            pairs.append(JudgedPair(first, second, is_same, (margin + reverse) / 2))
    return pairs


def compare(pairs: list[JudgedPair], judge: LexiconJudge, margin: float) -> Comparison:
    """Compares a model's pairs with the worths of a lexicon, whose differences up to `margin` are
    ties.
    """
    difference = np.array([judge.worth(pair.first) - judge.worth(pair.second) for pair in pairs])
    model = np.array([pair.margin for pair in pairs])
    is_right = (model > 0) == (difference > 0)
    has_preference = np.abs(difference) > margin
    is_clear = np.abs(difference) >= CLEAR

    margins_of_text = defaultdict(list)
    for pair in pairs:
        margins_of_text[pair.first].append(pair.margin)
        margins_of_text[pair.second].append(-pair.margin)
    texts = [text for text, margins in margins_of_text.items() if len(margins) >= LEAST_PAIRS]
    liked = np.array([np.mean(margins_of_text[text]) for text in texts])
    worth = np.array([judge.worth(text) for text in texts])
    return Comparison(
        pairs=len(pairs),
        same_winner=float(np.mean([pair.same_winner for pair in pairs])),
        preferred=int(has_preference.sum()),
        right=float(is_right[has_preference].mean()),
        clear=int(is_clear.sum()),
        right_where_clear=float(is_right[is_clear].mean()),
        texts=len(texts),
        correlation=rank_correlation(liked, worth),
    )


def _two_places(value: float) -> str:
    """A share or a correlation without the nought in front: .87, -.03, 1.00, 0."""
    return f"{value:.2f}".replace("0.", ".", 1) if value else "0"


def table() -> str:
    """The table in Markdown."""
    lines = [
        "| game | judge | same winner in both orders | right, where the lexicon prefers one | right, where that is clear | rank correlation of texts |",
        "|---|---|---|---|---|---|",
    ]
    for title, (name, file, goal) in GAMES.items():
        lexicon = load_lexicon(file)
        for model, size in JUDGES.items():
            pairs = judged_pairs(ANSWERS / f"{name}_{model}.jsonl.gz")
            figures = compare(pairs, LexiconJudge(lexicon, goal), lexicon.margin)
            cells = (
                title,
                size,
                f"{100 * figures.same_winner:.0f} % of {figures.pairs:,}",
                f"{_two_places(figures.right)} of {figures.preferred}",
                f"{_two_places(figures.right_where_clear)} of {figures.clear}",
                f"{_two_places(figures.correlation)} of {figures.texts}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
