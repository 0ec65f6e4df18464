"""Asks about each pair in both orders and averages, where a caller asks a question once: beside a
training.

`annotate` asks the two orders as two questions of their own (`config.orders`), and measures the
bias between them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from motif_jax.core.verdicts import PAIR, UNKNOWN, Form
from motif_jax.motif.annotation import labels
from motif_jax.motif.annotation.annotator import Annotator, Answer, Preview, Question, check_answer


class BothOrders(Annotator):
    """Answers for a pair with the mean of an annotator's answers to the pair and to its reverse."""

    def __init__(self, annotator: Annotator) -> None:
        self._annotator = annotator
        self.identity = {**annotator.identity, "orders": "both"}
        self.short_name = annotator.short_name
        self.prices = annotator.prices
        self.questions_at_once = annotator.questions_at_once

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer] | None]:
        reversed_pairs = [
            dataclasses.replace(question, items=question.items[::-1]) for question in questions
        ]
        waiting: dict[int, Answer] = {}
        count = len(questions)
        for answered in self._annotator.annotate([*questions, *reversed_pairs]):
            if answered is None:
                yield None
                continue
            position, answer = answered
            # Here, since the session sees the average alone.
            check_answer(self._annotator, questions[position % count], answer)
            # Question p and its reverse p + count, whichever is answered first.
            partner = waiting.pop((position + count) % (2 * count), None)
            if partner is None:
                waiting[position] = answer
            elif position < count:
                yield position, averaged(answer, partner)
            else:
                yield position - count, averaged(partner, answer)

    def start(self) -> None:
        self._annotator.start()

    def preview(self, question: Question) -> Preview:
        return self._annotator.preview(question)

    def live(self) -> dict[str, float | int | str]:
        return self._annotator.live()

    def summary(self) -> dict[str, Any]:
        return self._annotator.summary()

    def close(self) -> None:
        self._annotator.close()


def in_default_orders(annotator: Annotator, form: Form) -> Annotator:
    """`annotator`, asked in both orders where that is its default and `form` has two."""
    return (
        BothOrders(annotator) if form is PAIR and annotator.default_orders == "both" else annotator
    )


def averaged(answer: Answer, of_reverse: Answer) -> Answer:
    """The answer about a pair from those about it and about its reverse; of one unknown answer the
    other counts.
    """
    forward = _probabilities(answer)
    reverse = _probabilities(of_reverse)[labels.TURNED[: len(PAIR.verdicts)]]
    mean = labels.mean_probabilities(np.stack([forward, reverse])[:, None])
    verdicts = np.array([[answer.label], [labels.TURNED[of_reverse.label]]], np.int8)
    label = int(labels.agreed(verdicts, mean)[0])
    tokens = tuple(map(sum, zip(answer.tokens, of_reverse.tokens, strict=True)))
    known_masses = [one.mass for one in (answer, of_reverse) if one.mass is not None]
    return Answer(
        label,
        None if label == UNKNOWN else tuple(map(float, mean[0])),
        (tokens[0], tokens[1], tokens[2]),
        "\n\n".join(filter(None, (answer.text, of_reverse.text))),
        sum(known_masses) / len(known_masses) if known_masses else None,
        # Why there is no verdict: of one that has none beside one that has, nobody need know.
        (answer.note or of_reverse.note) if label == UNKNOWN else "",
        answer.retried or of_reverse.retried,
        answer.cut + of_reverse.cut,
    )


def _probabilities(answer: Answer) -> np.ndarray:
    known = answer.label != UNKNOWN and answer.probabilities is not None
    return np.array(answer.probabilities if known else PAIR.certain(answer.label), np.float64)
