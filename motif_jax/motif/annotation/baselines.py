"""Annotators that read no captions and need no model: score, return, random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from motif_jax.core import seeds
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, SECOND, Form, label_by_numbers
from motif_jax.motif.annotation.annotator import Annotator, Answer, Question
from motif_jax.motif.annotation.config import AnnotatorConfig
from motif_jax.motif.pairs import layout
from motif_jax.motif.pairs.dataset import PairsDataset


def _array(dataset: PairsDataset, need: str) -> np.ndarray:
    """The array of a dataset that `need` names: 'info/NAME' [pairs, 2], or 'NAME' of data/
    [pairs, 2, length].
    """
    group, _, name = need.rpartition("/")
    return np.asarray((dataset.info if group else dataset.data)[name])


class _NumberAnnotator(Annotator):
    """Prefers the sub-sequence with the larger number in the array `need` of the dataset; equal
    numbers are a tie.
    """

    reads_items = False
    name: ClassVar[str]
    need: ClassVar[str]

    def __init__(self, config: AnnotatorConfig, form: Form, dataset: PairsDataset) -> None:
        self.identity = {"annotator": self.name, "dataset": dataset.content_hash()}
        self.short_name = self.name
        array = _array(dataset, self.need)
        # float64 [pairs, 2]: a float32 sum of long sub-sequences would depend on the order of its
        # terms.
        self._numbers = array if array.ndim == 2 else array.sum(-1, dtype=np.float64)

    @classmethod
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        # The number of pairs and their length come from `message`: an array of info/ has no length.
        dataset = PairsDataset.open(config.dataset_dir, need=("message", cls.need))
        pair = layout.first_not_finite(_array(dataset, cls.need))
        if pair is not None:
            file = cls.need if "/" in cls.need else f"data/{cls.need}"
            raise UserError(
                f"config.annotator={cls.name}: {dataset.folder / file}.npy must be finite, but pair {pair} has a number that is not"
            )

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        for position, question in enumerate(questions):
            first, second = self._numbers[question.pair]
            yield position, Answer(label_by_numbers(first, second))


class ScoreAnnotator(_NumberAnnotator):
    """Prefers the higher game score (info/score)."""

    name = "score"
    need = "info/score"


class ReturnAnnotator(_NumberAnnotator):
    """Prefers the higher sum of task rewards (data/rewards)."""

    name = "return"
    need = "rewards"


class RandomAnnotator(Annotator):
    """Picks a side at random, fixed for each pair by a hash: a baseline from which no reward can be
    learned.
    """

    reads_items = False

    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any = None) -> None:
        self.identity = {"annotator": "random", "seed": config.seed}
        self.short_name = "random"
        self._seed: int = config.seed

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        for position, question in enumerate(questions):
            label = (
                SECOND if seeds.derive(self._seed, "random annotator", question.id) % 2 else FIRST
            )
            yield position, Answer(label, (0.5, 0.5, 0.0))
