"""Annotators that need neither captions nor a model: score, return, random.

`score` prefers the sub-sequence with the higher game score (info/score), `return` that with the higher sum of task
rewards (data/rewards), `random` tosses a coin for each pair: a floor that no training can beat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from motif_jax.annotation.annotator import FIRST, SECOND, TIE, Annotator, Answer, Question
from motif_jax.datasets.pairs.dataset import PairsDataset
from motif_jax.support import seeds
from motif_jax.support.errors import UserError


class NumberAnnotator(Annotator):
    """Prefers the sub-sequence with the larger number; equal numbers are a tie."""

    reads_captions = False

    def __init__(self, name: str, numbers: np.ndarray, content_hash: str) -> None:
        """Takes the numbers of a dataset, [pairs, 2], and its content hash."""
        self.identity = {"annotator": name, "dataset": content_hash}
        self.short_name = name
        self._numbers = numbers

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        """Yields (position, answer) in the order of the questions, which name pairs.

        Raises:
          ValueError: a question is not about a pair of the dataset.
        """
        for position, question in enumerate(questions):
            if question.pair is None:
                raise ValueError(f"{self.short_name} judges pairs of a dataset, not captions")
            first, second = self._numbers[question.pair]
            yield position, Answer(FIRST if first > second else SECOND if second > first else TIE)


class RandomAnnotator(Annotator):
    """Prefers either sub-sequence with probability one half; the same pair always gets the same answer."""

    reads_captions = False

    def __init__(self, seed: int) -> None:
        self.identity = {"annotator": "random", "seed": seed}
        self.short_name = "random"
        self._seed = seed

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        """Yields (position, answer) in the order of the questions."""
        for position, question in enumerate(questions):
            label = SECOND if seeds.derive(self._seed, "random annotator", question.id) % 2 else FIRST
            yield position, Answer(label, (0.5, 0.5, 0.0))


def check(config: Any) -> None:
    """Raises UserError when the dataset does not have what the annotator reads."""
    name = config.annotator
    need = {"score": ("message", "info/score"), "return": ("message", "rewards")}.get(name)
    if need is None:
        return
    try:
        PairsDataset.open(config.dataset_dir, need=need)
    except UserError as error:
        raise UserError(f"config.annotator={name} needs {need[-1]}: {error}") from None


def make(config: Any, dataset: PairsDataset) -> Annotator:
    """The annotator that `config.annotator` names."""
    if config.annotator == "random":
        return RandomAnnotator(config.seed)
    if config.annotator == "score":
        return NumberAnnotator("score", np.asarray(dataset.info["score"]), dataset.content_hash())
    returns = np.asarray(dataset.data["rewards"]).sum(-1, dtype=np.float64)
    return NumberAnnotator("return", returns, dataset.content_hash())
