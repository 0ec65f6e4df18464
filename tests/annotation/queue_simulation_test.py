"""Orders of asking, compared on the same stream."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from motif_jax.annotation.queue import ORDERS, PublishedQueue, QuestionQueue
from motif_jax.annotation.queue_simulation import simulate


@pytest.fixture(scope="module")
def batches():
    """Texts of which few are common and many are rare."""
    rng = random.Random(0)
    weights = [1 / (rank + 1) ** 1.1 for rank in range(3000)]
    draws = (rng.choices(range(3000), weights, k=300) for _ in range(300))
    return [[((str(text),), count) for text, count in Counter(draw).items()] for draw in draws]


@pytest.mark.parametrize("order", ORDERS)
def test_ours_asks_each_question_once(batches, order):
    found = simulate(QuestionQueue(10_000, order), batches, batches_a_call=5, batch=50)
    assert found.asked == found.distinct > 1000
    assert found.distinct + found.backlog <= found.met
    assert found.labelled_share > 0.8


def test_the_published_queue_asks_again_and_labels_less(batches):
    published = simulate(PublishedQueue(10**6, 50), batches, batches_a_call=5, batch=50, once=False)
    ours = simulate(QuestionQueue(10_000), batches, batches_a_call=5, batch=50)
    assert published.asked > 1.1 * published.distinct
    assert published.labelled_share < ours.labelled_share
    assert published.backlog > ours.backlog


def test_a_call_is_heard_when_it_ends():
    rows = [[(("a",), 2), (("b",), 1)]] * 20
    found = simulate(QuestionQueue(10), rows, batches_a_call=19, batch=1)
    # The more frequent one is asked first, and known in the last batch alone.
    assert (found.asked, found.backlog) == (2, 0)
    assert found.labelled_share == pytest.approx(2 / 6)
