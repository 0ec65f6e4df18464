"""What answers say about the annotator."""

from __future__ import annotations

import math

import numpy as np
import pytest

from motif_jax.core.verdicts import FIRST, SECOND, TIE, UNKNOWN
from motif_jax.motif.annotation import judge_figures
from motif_jax.motif.annotation.questions import QuestionHasher, caption_questions
from motif_jax.motif.annotation.store import StoredAnswer


def soft(first: float, tie: float = 0.0) -> StoredAnswer:
    second = 1 - tie - first
    return StoredAnswer(FIRST if first > second else SECOND, (first, second, tie), mass=0.8)


def test_shares_are_of_the_order_as_asked() -> None:
    answers = [
        StoredAnswer(FIRST),
        StoredAnswer(FIRST),
        StoredAnswer(SECOND),
        StoredAnswer(TIE),
        StoredAnswer(UNKNOWN),
    ]
    figures = judge_figures.answer_figures(answers)
    assert figures["first_share"] == pytest.approx(2 / 3)
    assert (figures["tie_share"], figures["unknown_share"]) == (0.25, 0.2)
    assert "mass" not in figures


def test_answers_without_probabilities_of_their_own_have_no_log_odds() -> None:
    """Shards have certain probabilities for them."""
    certain = [
        StoredAnswer(FIRST, (1.0, 0.0, 0.0)),
        StoredAnswer(SECOND, (0.0, 1.0, 0.0)),
        StoredAnswer(FIRST),
    ]

    assert judge_figures.median_log_odds([certain[0], *certain]) == 0.0
    assert judge_figures.median_log_odds([*certain, soft(0.75)]) == pytest.approx(math.log(3))


def test_a_model_that_is_certain_has_log_odds() -> None:
    """It has a mass, which tells its probabilities from those that shards have for answers
    without.
    """
    answers = [StoredAnswer(FIRST, (1.0, 0.0, 0.0), mass=0.9)] * 2 + [soft(0.75)]
    assert judge_figures.median_log_odds(answers) == pytest.approx(math.log(1e9))


def test_mass_is_the_mean_of_the_answers_that_have_it() -> None:
    assert judge_figures.answer_figures([soft(0.3), StoredAnswer(FIRST)])["mass"] == 0.8


def test_no_answers_have_no_shares() -> None:
    assert math.isnan(judge_figures.answer_figures([])["first_share"])


def biased(signal: float, bias: float, tie: float = 0.2) -> StoredAnswer:
    return soft((1 - tie) / (1 + math.exp(-signal - bias)), tie)


def test_a_correction_leaves_the_signal_and_the_ties() -> None:
    signals = [-2.0, -0.5, 0.0, 0.5, 2.0]
    answers = [biased(signal, 3.0) for signal in signals]
    assert {answer.label for answer in answers} == {FIRST}
    corrected = judge_figures.corrected(answers)
    expected = [biased(signal, 0.0).probabilities for signal in signals]
    np.testing.assert_allclose([answer.probabilities for answer in corrected], expected, atol=1e-9)
    assert [answer.label for answer in corrected] == [SECOND, SECOND, TIE, FIRST, FIRST]


def test_a_correction_leaves_answers_without_probabilities() -> None:
    answers = [StoredAnswer(FIRST), None, StoredAnswer(UNKNOWN)]
    assert judge_figures.corrected(answers) == answers


def test_certain_probabilities_can_be_corrected() -> None:
    assert all(
        np.isfinite(answer.probabilities).all()
        for answer in judge_figures.corrected([soft(1.0), soft(0.0)])
    )


def test_agreement_counts_what_both_know() -> None:
    agreement = judge_figures.agreement(np.array([0, 1, 2, 3, 0]), np.array([0, 0, 2, 1, 2]))
    assert (agreement["pairs"], agreement["equal"], agreement["equal_decided"]) == (4, 0.5, 0.5)


def test_captions_are_ranked_by_their_mean_probability() -> None:
    pairs = [("kill", "wall"), ("wall", "gold"), ("kill", "gold"), ("kill", "kill")]
    p = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], float)
    ranked = judge_figures.rank_captions(pairs, p)
    assert [ranked_caption.caption for ranked_caption in ranked] == ["gold", "kill", "wall"]
    assert ranked[1] == ("kill", 0.75, 2)


def test_one_comparison_does_not_lead() -> None:
    pairs = [("often", "wall")] * 9 + [("once", "wall")]
    ranked = judge_figures.rank_captions(pairs, np.array([[1.0, 0, 0]] * 10))
    assert ranked[0].caption == "often"


def test_unknown_pairs_are_not_ranked() -> None:
    assert judge_figures.rank_captions([("a", "b")], np.full((1, 3), np.nan)) == []
    assert judge_figures.describe_order([]) == "no two captions have a verdict"


FINE = {
    "answers": 100,
    "decided": 90,
    "first_share": 0.5,
    "tie_share": 0.1,
    "unknown_share": 0.0,
    "mass": 0.9,
}


def captions_between(lowest: float, highest: float, comparisons: int = 12) -> list:
    return [
        judge_figures.RankedCaption("You land.", highest, comparisons),
        judge_figures.RankedCaption("You crash!", 0.47, comparisons),
        judge_figures.RankedCaption("", 0.46, comparisons),
        judge_figures.RankedCaption("You drift.", lowest, comparisons),
    ]


def test_agreement_of_orders_is_no_praise_where_no_caption_stands_out() -> None:
    for consistent, words in ((0.9, "Both orders agree"), (None, "No position bias")):
        advice = judge_figures.advice(FINE, consistent, captions_between(0.44, 0.69))
        assert advice.startswith(words)
        assert "no caption stands out" in advice
        assert "between 0.44 and 0.69" in advice
        assert "can be used" not in advice


@pytest.mark.parametrize(
    ("lowest", "highest", "comparisons"), [(0.1, 0.69, 12), (0.44, 0.93, 12), (0.44, 0.69, 4)]
)
def test_a_caption_far_from_one_half_or_of_few_comparisons_is_no_doubt(
    lowest: float, highest: float, comparisons: int
) -> None:
    ranked = captions_between(lowest, highest, comparisons)
    assert "stands out" not in judge_figures.advice(FINE, 0.9, ranked)


def test_the_place_of_silence_is_named_with_its_neighbours() -> None:
    ranked = captions_between(0.44, 0.69)
    line = "2 of 3 captions stand above the empty one, the nearest 'You crash!'; the nearest below it is 'You drift.'"
    assert judge_figures.place_of_silence(ranked) == line
    assert judge_figures.describe_order(ranked).splitlines()[2] == line
    assert judge_figures.place_of_silence(ranked[:2]) == ""


def test_a_caption_that_always_wins_a_little_has_that_probability() -> None:
    pairs = [("a", "b")] * 10
    ranked = judge_figures.rank_captions(pairs, np.array([[0.6, 0.4, 0.0]] * 10))
    assert [caption.probability for caption in ranked] == pytest.approx([0.6, 0.4])
    assert "preferred most (mean probability, comparisons): 'a' 0.60 (10)" in (
        judge_figures.describe_order(ranked)
    )


def test_consistency_needs_both_orders() -> None:
    pairs = [("a", "b"), ("c", "d"), ("e", "e")]
    hasher = QuestionHasher({})
    both = caption_questions(pairs, 3, hasher, "both")
    answers = {("a", "b"): FIRST, ("b", "a"): SECOND, ("c", "d"): FIRST, ("d", "c"): FIRST}
    stored = [StoredAnswer(answers[question.items]) for question in both.questions]
    assert judge_figures.consistency(both, stored) == 0.5
    assert (
        judge_figures.consistency(caption_questions(pairs, 3, hasher, "once"), stored[:2]) is None
    )


def test_a_share_of_no_pairs_is_not_a_number() -> None:
    both = caption_questions([("a", "b")], 1, QuestionHasher({}), "both")
    assert math.isnan(judge_figures.consistency(both, [StoredAnswer(FIRST), StoredAnswer(UNKNOWN)]))
