"""Distinct questions, the three orders, and shards of any count."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.verdicts import SINGLE
from motif_jax.motif.annotation.questions import QuestionHasher, caption_questions

HASHER = QuestionHasher({"annotator": "test"})


def pairs_of(seed, count=300, texts=12):
    rng = np.random.default_rng(seed)
    return [(f"t{a}", f"t{b}") for a, b in rng.integers(0, texts, (count, 2))]


@pytest.mark.parametrize("orders", ["once", "given", "both"])
def test_every_pair_finds_its_question(orders):
    pairs = pairs_of(1)
    listed = caption_questions(pairs, len(pairs), HASHER, orders)
    assert len({question.id for question in listed.questions}) == len(listed.questions)
    assert len({question.items for question in listed.questions}) == len(listed.questions)
    assert listed.question_indices.shape == (300, 2 if orders == "both" else 1)
    for pair, places, swaps in zip(pairs, listed.question_indices, listed.swapped, strict=True):
        if pair[0] == pair[1]:
            assert (places == -1).all()
            continue
        question_items = [listed.questions[number].items for number in places]
        assert question_items == [pair[::-1] if swapped else pair for swapped in swaps]
        assert len(set(question_items)) == len(question_items)


def test_once_asks_each_unordered_pair_once_whatever_the_order():
    pairs = [pair for pair in pairs_of(2) if pair[0] != pair[1]]
    listed = caption_questions(pairs, len(pairs), HASHER, "once")
    assert len(listed.questions) == len({frozenset(pair) for pair in pairs})
    turned = caption_questions([pair[::-1] for pair in pairs][::-1], len(pairs), HASHER, "once")
    assert {q.id for q in turned.questions} == {q.id for q in listed.questions}
    first = np.mean([q.items[0] < q.items[1] for q in listed.questions])
    assert 0.2 < first < 0.8, "neither side is preferred"


def test_ids_depend_on_identity_order_and_borders():
    ids = [HASHER.id_of_texts(items) for items in (("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"))]
    ids += [HASHER.id_of_texts((text,), SINGLE) for text in ("ab", "captions 1 ab", "b")]
    ids += [
        HASHER.id_of_pair(0),
        HASHER.id_of_pair(1),
        QuestionHasher({"annotator": "other"}).id_of_texts(("a", "b")),
    ]
    assert len(set(ids)) == len(ids)
    assert ids[0] == "ff482661cb107591810593f94bd8830d", "stores of earlier versions are found"
