"""The page of an annotator's answers: the pairs, by order, and what a reader finds on it."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from motif_jax.core.verdicts import FIRST, SECOND, TIE, UNKNOWN
from motif_jax.motif.annotation import answers_page, judge_figures
from motif_jax.motif.annotation.answers_page import JudgeSummary, judged_pairs
from motif_jax.motif.annotation.labels import labels_of_pairs
from motif_jax.motif.annotation.questions import QuestionHasher, caption_questions
from motif_jax.motif.annotation.store import StoredAnswer

CAPTIONS = [
    ("kill", "wall"),
    ("wall", "kill"),
    ("gold", "gold"),
    ("gold", "wall"),
    ("kill", "wall"),
]
# What was asked -> the probabilities of the first caption, the second, a tie.
PROBABILITIES = {
    ("kill", "wall"): (0.9, 0.1, 0.0),
    ("wall", "kill"): (0.3, 0.7, 0.0),
    ("gold", "wall"): (0.6, 0.4, 0.0),
    ("wall", "gold"): (0.8, 0.2, 0.0),
}


def answered(
    orders: str = "both", probabilities=PROBABILITIES, reference_labels=None
) -> list[answers_page.JudgedPair]:
    questions = caption_questions(CAPTIONS, len(CAPTIONS), QuestionHasher({}), orders)
    answers = [probabilities[question.items] for question in questions.questions]
    stored = [StoredAnswer(int(np.argmax(p)), p) if p else StoredAnswer(UNKNOWN) for p in answers]
    return judged_pairs(
        CAPTIONS, questions, stored, labels_of_pairs(questions, stored), reference_labels
    )


def test_pairs_are_listed_once_without_reverses_and_equal_captions() -> None:
    kill, gold = answered()
    assert (kill.captions, kill.occurrences) == (("kill", "wall"), 3)
    assert (gold.captions, gold.occurrences) == (("gold", "wall"), 1)


def test_probabilities_are_of_the_first_caption_in_either_order() -> None:
    kill, gold = answered()
    assert (kill.shown_first, kill.shown_second) == (0.9, 0.7)
    assert kill.probabilities == pytest.approx((0.8, 0.2, 0.0))
    assert kill.label == FIRST
    assert (gold.shown_first, gold.shown_second) == (0.6, 0.2)
    assert gold.probabilities == pytest.approx((0.4, 0.6, 0.0))
    assert gold.label == SECOND


def test_orders_agree_where_they_have_the_same_winner() -> None:
    assert [pair.orders_agree for pair in answered()] == [True, False]


def test_a_pair_that_was_asked_reversed_is_turned() -> None:
    # Of each pair one order is drawn: in both cases the probabilities are those of "kill" and of
    # "gold".
    kill, gold = answered("once")
    assert kill.orders_agree is None
    assert sum(map(math.isfinite, (kill.shown_first, kill.shown_second))) == 1
    by_order = {"kill": (0.9, 0.7), "gold": (0.6, 0.2)}
    for pair in (kill, gold):
        shown_first, shown_second = by_order[pair.captions[0]]
        expected = shown_first if math.isfinite(pair.shown_first) else shown_second
        assert pair.probabilities[FIRST] == pytest.approx(expected)


def test_a_dataset_with_both_orders_is_shown_unchanged() -> None:
    """A judge that always says the first: pure bias, which one order alone would hide."""
    biased = dict.fromkeys(PROBABILITIES, (0.9, 0.1, 0.0))

    kill, gold = answered("given", biased)

    assert (kill.shown_first, kill.shown_second, kill.orders_agree) == (
        0.9,
        pytest.approx(0.1),
        False,
    )
    # Of this pair only one order stands in the dataset.
    assert math.isnan(gold.shown_second)
    assert gold.orders_agree is None


def test_pairs_that_neither_annotator_knows_are_no_agreement() -> None:
    unknown = {**PROBABILITIES, ("gold", "wall"): None, ("wall", "gold"): None}
    reference_labels = np.array([FIRST, SECOND, TIE, UNKNOWN, FIRST])
    pairs = answered(probabilities=unknown, reference_labels=reference_labels)
    figures = {
        "answers": 2,
        "unknown_share": 0.0,
        "first_share": 0.5,
        "tie_share": 0.0,
        "advice": "",
    }

    page = answers_page.render(pairs, JudgeSummary("judge", figures, [], "?", "reference"))

    assert re.search(r"as reference.{0,200}100", page, re.DOTALL)
    assert "of the different pairs that both know" in page


def test_an_order_without_a_verdict_is_left_open() -> None:
    kill, _ = answered(probabilities={**PROBABILITIES, ("wall", "kill"): None})
    assert (kill.shown_first, kill.orders_agree) == (0.9, None)
    assert math.isnan(kill.shown_second)


FIGURES = {
    "answers": 4, "first_share": 0.75, "tie_share": 0.0, "unknown_share": 0.0, "mass": 0.98, "consistent": 0.5,
    "advice": "Ask both orders.",
}  # fmt: skip


def page(pairs, reference: str = "", question: str = "Which?", figures=FIGURES) -> str:
    ranked = [judge_figures.RankedCaption("kill", 0.8, 3), judge_figures.RankedCaption("", 0.2, 4)]
    return answers_page.render(pairs, JudgeSummary("qwen", figures, ranked, question, reference))


def rows(html: str, table: str) -> list[list[str]]:
    """The texts of the cells of a table's body."""
    body = re.search(rf'<table id="{table}".*?<tbody>(.*?)</tbody>', html, re.DOTALL)
    assert body is not None
    return [
        [re.sub("<.*?>", " ", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)]
        for row in re.findall(r"<tr>.*?</tr>", body[1], re.DOTALL)
    ]


def test_a_row_has_the_pair_the_verdict_and_both_orders() -> None:
    kill, gold = rows(page(answered()), "judged")
    assert kill == ["kill", "wall", "A", "0.80", "0.20", "0.00", "0.90", "0.70", "agree", "3"]
    assert gold == ["gold", "wall", "B", "0.40", "0.60", "0.00", "0.60", "0.20", "disagree", "1"]


def test_another_annotators_verdict_stands_beside_and_differences_can_be_searched() -> None:
    labels = np.array([FIRST, SECOND, TIE, FIRST, FIRST])
    html = page(answered(reference_labels=labels), reference="lexicon")
    kill, gold = rows(html, "judged")
    assert kill[-1] == "A"
    assert gold[-1].split() == ["A", "differs"]
    assert "as lexicon" in html
    assert "the words disagree, differs" in html


def test_captions_stand_in_the_judges_order() -> None:
    assert rows(page(answered()), "ranked") == [
        ["kill", "0.80", "3"],
        ["(no message)", "0.20", "4"],
    ]


def test_the_order_of_captions_shows_probabilities_and_no_wins() -> None:
    text = page(answered())
    assert "mean probability" in text
    assert "wins</th>" not in text
    assert "1 of 1 captions stand above the empty one, the nearest &#x27;kill&#x27;." in text


def test_texts_of_games_and_models_are_shown_as_texts() -> None:
    probabilities = {
        tuple(text.replace("kill", "<b>kill") for text in items): p
        for items, p in PROBABILITIES.items()
    }
    captions = [tuple(text.replace("kill", "<b>kill") for text in pair) for pair in CAPTIONS]
    questions = caption_questions(captions, len(captions), QuestionHasher({}), "both")
    stored = [
        StoredAnswer(int(np.argmax(probabilities[q.items])), probabilities[q.items])
        for q in questions.questions
    ]
    pairs = judged_pairs(captions, questions, stored, labels_of_pairs(questions, stored))
    html = page(pairs, question="<script>alert(1)</script>")
    assert "<b>" not in html
    assert "<script>alert" not in html


def test_one_order_has_no_chart_of_both() -> None:
    assert "Both orders of a pair" in page(answered())
    assert "Both orders of a pair" not in page(answered("once"))


def test_a_judge_without_answers_has_no_shares() -> None:
    figures = {"answers": 0, "advice": "No question was answered."}
    figures |= dict.fromkeys(("first_share", "tie_share", "unknown_share"), math.nan)
    html = page([], figures=figures)
    assert html.count(">n/a<") == 2
    assert "n/a without a verdict" in html
    assert "No question was answered." in html
    assert "nan" not in re.sub(
        "<style.*?</style>|<script.*?</script>|<svg.*?</svg>", "", html, flags=re.DOTALL
    )
