"""A small made-up corpus in the published layout: friendly, blunt or (mildly) rude replies, with
scores.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from motif_jax.core import seeds
from motif_jax.core.files import atomic_write_text
from motif_jax.ilql.tasks.reddit.data import FILES

_OBJECTS = (
    "soup", "bread", "garden", "bicycle", "chess", "guitar", "kettle", "map", "novel", "painting", "puzzle", "radio", "sofa", "tent",
    "umbrella", "violin",
)  # fmt: skip
_PARENTS = (
    "I made a {} today.",
    "What do you think of my {}?",
    "My {} is broken again.",
    "Is a {} worth the money?",
    "I have never had a {} before.",
)
_FRIENDLY = (
    "That is a lovely {}, well done!",
    "Thank you for showing us your {}.",
    "I had the same trouble with my {}, try cleaning it first.",
    "Enjoy your {}, you will like it.",
)
_BLUNT = (
    "Nobody needs a {}.",
    "Your {} is boring.",
    "What a dull thing to say about a {}.",
    "A {}? Nonsense.",
)
_RUDE = (
    "You are a fool, and so is your {}.",
    "Only an idiot would want such a stupid {}.",
    "Shut up about your {}, you clown.",
    "What an ugly, stupid {}.",
)
# Kind of reply -> frequency and mean score.
_KINDS = ((_FRIENDLY, 0.45, 8.0), (_BLUNT, 0.3, -1.0), (_RUDE, 0.25, -6.0))
_HEADER = (
    "id", "link", "subreddit", "author", "text", "score", "date", "p_id", "p_link", "p_author", "parent_text",
)  # fmt: skip


def write(folder: Path, count: int, seed: int = 1) -> None:
    """Writes `count` comments, those with scores above 0 into the first file; does nothing if the
    files exist.
    """
    # The second file is written last: with it both are complete.
    if (folder / FILES[1]).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rows: tuple[list[list[str]], list[list[str]]] = ([], [])  # of each of the two files
    rng = seeds.rng(seed, "comments")
    shares = [share for _, share, _ in _KINDS]
    for number in range(count):
        replies, _, mean_score = _KINDS[int(rng.choice(len(_KINDS), p=shares))]
        item = _OBJECTS[int(rng.integers(len(_OBJECTS)))]
        parent = _PARENTS[int(rng.integers(len(_PARENTS)))].format(item)
        text = replies[int(rng.integers(len(replies)))].format(item)
        score = round(float(rng.normal(mean_score, 5.0)))
        row = [
            f"c{number}",
            "",
            "things",
            f"user{number % 97}",
            text,
            str(score),
            "",
            "",
            "",
            "",
            parent,
        ]
        liked, others = rows
        if score > 0:
            liked.append(row)
        else:
            others.append(row)
    for name, written in zip(FILES, rows, strict=True):
        buffer = io.StringIO()
        csv.writer(buffer).writerows([_HEADER, *written])
        atomic_write_text(folder / name, buffer.getvalue())


def friendly(rng: np.random.Generator) -> str:
    """Draws a friendly reply."""
    item = _OBJECTS[int(rng.integers(len(_OBJECTS)))]
    return _FRIENDLY[int(rng.integers(len(_FRIENDLY)))].format(item)
