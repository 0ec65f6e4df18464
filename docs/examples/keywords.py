"""An annotator of one's own: prefers the text with more words of a list, and says how sure it is.

    PYTHONPATH=docs/examples python -m motif_jax.launch --config=configs/annotate.py \\
        --workdir=runs/annotate_keywords --config.dataset_dir=runs/quickstart/dataset \\
        --config.annotator=keywords:Keywords

Questions, store, shards, resume and labels are the stage's; what is below is all that an annotator
needs. The labels are then `DATASET/preference/keywords.npy`, and `--config.annotator=keywords` of
train_reward reads them; with `--config.labels.soft=True` it learns the probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from motif_jax.core.verdicts import Form, label_by_numbers
from motif_jax.motif.annotation.annotator import Annotator, Answer, Question

LIKED = ("door", "stairs", "find", "see", "open", "gold")
DISLIKED = ("wall", "solid stone", "Unknown command", "hurts", "die")


def worth(text: str) -> int:
    """Liked words less disliked ones."""
    return sum(text.count(word) for word in LIKED) - sum(text.count(word) for word in DISLIKED)


class Keywords(Annotator):
    """Compares the worth of two texts."""

    def __init__(self, config: Any, form: Form, dataset: Any) -> None:
        # All that answers depend on: another list of words is another annotator, and its answers
        # are stored apart.
        self.identity = {"annotator": "keywords", "liked": LIKED, "disliked": DISLIKED}
        self.short_name = "keywords"  # of the label file

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        """Yields (position, answer) in any order, each once."""
        for position, question in enumerate(questions):
            first, second = map(worth, question.items)
            yield position, Answer(label_by_numbers(first, second), probabilities(first - second))


def probabilities(difference: int) -> tuple[float, float, float]:
    """Of first, second and tie; the further apart, the surer."""
    weights = (math.exp(difference), math.exp(-difference), 1.5)
    return tuple(weight / sum(weights) for weight in weights)
