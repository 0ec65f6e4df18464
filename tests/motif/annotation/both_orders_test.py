"""Pairs that are asked in both orders and averaged, beside a training."""

from __future__ import annotations

import pytest

from motif_jax.core.verdicts import FIRST, PAIR, SECOND, SINGLE, TIE, UNKNOWN
from motif_jax.motif.annotation.annotator import Annotator, Answer, Question
from motif_jax.motif.annotation.both_orders import BothOrders, averaged, in_default_orders


class Biased(Annotator):
    """Adds to the first text's worth, which is its length."""

    default_orders = "both"
    identity = {"annotator": "biased"}
    short_name = "biased"

    def __init__(self) -> None:
        """No config."""

    def annotate(self, questions):
        for position, question in reversed(list(enumerate(questions))):
            first, second = (len(item) for item in question.items)
            share = (first + 3) / (first + second + 3)
            yield (
                position,
                Answer(FIRST if share > 0.5 else SECOND, (share, 1 - share, 0.0), (10, 1, 5)),
            )


def test_the_bias_of_one_order_cancels() -> None:
    question = Question("0" * 32, ("xx", "yyy"))
    ((position, answer),) = BothOrders(Biased()).annotate([question])
    assert (position, answer.label) == (0, SECOND)
    assert answer.probabilities == pytest.approx(((5 / 8 + 2 / 8) / 2, (3 / 8 + 6 / 8) / 2, 0.0))
    assert answer.tokens == (20, 2, 10)


def test_opposite_answers_are_a_tie() -> None:
    always_first = Answer(FIRST, (0.9, 0.1, 0.0))
    assert averaged(always_first, always_first).label == TIE


def test_of_one_unknown_answer_the_other_counts() -> None:
    answer = averaged(Answer(UNKNOWN, note="too long", cut=1, retried=True), Answer(FIRST, cut=2))
    assert (answer.label, answer.probabilities) == (SECOND, (0.0, 1.0, 0.0))
    # Why there is no verdict is of no interest where there is one; what it cost is.
    assert (answer.note, answer.cut, answer.retried) == ("", 3, True)
    assert averaged(Answer(UNKNOWN, note="too long"), Answer(UNKNOWN)).note == "too long"


def test_two_ties_are_a_tie_whatever_their_probabilities() -> None:
    """As the lexicon calls what is within its margin."""
    forward = Answer(TIE, (0.45, 0.2, 0.35))
    reverse = Answer(TIE, (0.2, 0.45, 0.35))

    answer = averaged(forward, reverse)

    assert answer.label == TIE
    assert answer.probabilities == pytest.approx((0.45, 0.2, 0.35))


@pytest.mark.parametrize(
    ("forward", "reverse", "mass"),
    [(0.9, 0.5, 0.7), (None, 0.5, 0.5), (0.9, None, 0.9), (None, None, None)],
)
def test_the_mass_is_the_mean_of_known_masses(
    forward: float | None, reverse: float | None, mass: float | None
) -> None:
    answer = averaged(Answer(FIRST, mass=forward), Answer(SECOND, mass=reverse))

    assert answer.mass == pytest.approx(mass)


def test_two_unknown_answers_are_unknown() -> None:
    assert averaged(Answer(UNKNOWN), Answer(UNKNOWN)).label == UNKNOWN


def test_single_texts_have_one_order() -> None:
    annotator = Biased()
    assert in_default_orders(annotator, SINGLE) is annotator
    assert in_default_orders(annotator, PAIR).identity != annotator.identity
